# cirron: `make` builds into build/, `make check` builds and runs the tests, `make demo` shows it on a real training.
# V=1 shows the commands. SAN=1 builds everything with ASan and UBSan into build/san.

CC ?= cc
SAN ?=
B := $(if $(SAN),build/san,build)
Q := $(if $(V),,@)
VERSION := 0.1.0

WARN := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wvla -Werror
CSTD := -std=gnu11
OPT := $(if $(SAN),-O1 -g -fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer,-O2 -g)
comma := ,
BASE := $(CSTD) $(OPT) $(WARN) -D_GNU_SOURCE -DCIRRON_VERSION='"$(VERSION)"' -I. -I$(B)/gen -MMD -MP

LIBS_D := libevent_core libprotobuf-c sqlite3 libzstd
LIBS_Q := sqlite3 libzstd smartcols jansson
CF_D := $(shell pkg-config --cflags $(LIBS_D) 2>/dev/null)
CF_Q := $(shell pkg-config --cflags $(LIBS_Q) 2>/dev/null)
LD_D := $(shell pkg-config --libs $(LIBS_D) 2>/dev/null) -lpthread
LD_Q := $(shell pkg-config --libs $(LIBS_Q) 2>/dev/null) -lm

# The agent is a guest: libc only, hidden symbols, symbol versions that old systems have.
AGENT_CF := -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-strict-aliasing $(if $(SAN),,-fno-stack-protector)
AGENT_LD := -shared -Wl,-z,now -Wl,-z,defs -Wl,--version-script=agent/exports.map -Wl,-soname,libcirron_agent.so

AGENT_O := $(patsubst %.c,$(B)/%.o,$(wildcard agent/*.c))
PROTO_O := $(patsubst %.c,$(B)/%.o,$(wildcard proto/*.c))
GEN_O := $(B)/gen/proto/cirron.pb-c.o
COLL_O := $(patsubst %.c,$(B)/%.o,$(wildcard collectord/*.c))
TOOL_O := $(patsubst %.c,$(B)/%.o,$(wildcard tools/*.c))

all: $(B)/libcirron_agent.so $(B)/collectord $(B)/cirron-query

$(B)/libcirron_agent.so: $(AGENT_O) agent/exports.map
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) $(AGENT_LD) -o $@ $(AGENT_O)

$(B)/collectord: $(COLL_O) $(PROTO_O) $(GEN_O)
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) -o $@ $^ $(LD_D)

$(B)/cirron-query: $(TOOL_O) $(PROTO_O)
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) -o $@ $^ $(LD_Q)

$(B)/agent/%.o: agent/%.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(BASE) $(AGENT_CF) -c -o $@ $<

$(B)/collectord/%.o: collectord/%.c $(B)/gen/proto/cirron.pb-c.h
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(BASE) $(CF_D) -c -o $@ $<

$(B)/tools/%.o: tools/%.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(BASE) $(CF_Q) -c -o $@ $<

$(B)/proto/%.o: proto/%.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(BASE) $(CF_D) -c -o $@ $<

$(B)/gen/proto/cirron.pb-c.c $(B)/gen/proto/cirron.pb-c.h &: proto/cirron.proto
	@mkdir -p $(B)/gen; echo "  GEN   $<"
	$(Q)protoc-c --c_out=$(B)/gen $<

$(GEN_O): $(B)/gen/proto/cirron.pb-c.c
	$(Q)$(CC) $(CSTD) $(OPT) -w -I$(B)/gen $(CF_D) -c -o $@ $<

# Unit tests: tests/unit/test_NAME.c, linked with what its first line names: // links: agent/x.c collectord/y.c
UNIT := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
unit: $(UNIT)
.SECONDEXPANSION:
unit-links = $(shell sed -n '1s;^// links:;;p' $(1))
$(B)/unit/%: tests/unit/%.c $$(patsubst %.c,$(B)/%.o,$$(call unit-links,tests/unit/$$*.c)) $(GEN_O)
	@mkdir -p $(@D); echo "  UNIT  $@"
	$(Q)$(CC) $(filter-out -Wmissing-prototypes,$(BASE)) $(CF_D) $(CF_Q) -o $@ $< $(filter %.o,$^) $$(pkg-config --libs cmocka) $(LD_D) $(LD_Q)

clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.PHONY: all unit clean
.DELETE_ON_ERROR:
