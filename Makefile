# cirron, the flight recorder for training runs. Everything goes through this file:
#
#   make          builds the agent, collectord and cirron-query into build/
#   make demo     installs what is missing, trains a small network under the agent and prints the report
#   make check    installs what is missing, builds, runs every test; the last line sums them up
#   make check-long    the same, with every test on every interpreter
#   make check-matrix  frameworks on other Pythons, of the system, with TensorFlow: gigabytes of packages (tests/run_matrix.sh)
#   make unit     builds the unit tests (run them with tests/run_unit.sh)
#   make e2e-X    runs one suite: tests/e2e/X/run.sh
#   make lint, format, bench, judge, man, install, deb, wheel, clean
#
# V=1 shows the commands. SAN=1 builds everything with ASan and UBSan into build/san.

CC ?= cc
SAN ?=
DESTDIR ?=
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
# The programs and known results that `make judge` compares with; they lie beside the repository, not in it.
JUDGE ?= ../shared/cases/judge.py
B := $(if $(SAN),build/san,build)
Q := $(if $(V),,@)
VERSION := 0.1.0

WARN := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wvla -Werror
CSTD := -std=gnu11
comma := ,
OPT := $(if $(SAN),-O1 -g -fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer,-O2 -g)
BASE := $(CSTD) $(OPT) $(WARN) -D_GNU_SOURCE -DCIRRON_VERSION='"$(VERSION)"' -I. -I$(B)/gen -MMD -MP

LIBS_D := libevent_core libprotobuf-c sqlite3 libzstd
LIBS_Q := libprotobuf-c sqlite3 libzstd smartcols jansson
CF_D := $(shell pkg-config --cflags $(LIBS_D) 2>/dev/null)
CF_Q := $(shell pkg-config --cflags $(LIBS_Q) 2>/dev/null)
LD_D := $(shell pkg-config --libs $(LIBS_D) 2>/dev/null) -lpthread -lm
LD_Q := $(shell pkg-config --libs $(LIBS_Q) 2>/dev/null) -lm

# The agent is a guest: libc only, hidden symbols, symbol versions that old systems have. What is preloaded, libcirron_agent.so, is
# next to nothing; it loads libcirron_core.so where there is a CPython. No start files, noseparate-code, norelro: every program that
# is started under the preload pays for each page touched and each mapping (make bench shows it).
# What hot.h calls unlikely is laid out of the way altogether.
AGENT_HOT := $(if $(findstring clang,$(CC)),,--param builtin-expect-probability=100)
AGENT_CF := -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-strict-aliasing $(if $(SAN),,-fno-stack-protector) $(AGENT_HOT)
# As one unit: a span goes through a dozen files, and between two spans the caches are full of other things (a tenth of its cost).
AGENT_LTO := $(if $(SAN)$(findstring clang,$(CC)),,-flto -flto-partition=one -ffat-lto-objects)
AGENT_LD := -shared $(AGENT_CF) $(AGENT_LTO) -Wl,-z,now -Wl,-z,defs -Wl,-z,nodelete -Wl,--version-script=agent/exports.map -Wl,-soname,libcirron_core.so
PRELOAD_LD := -shared $(if $(SAN),,-nostartfiles) -Wl,-z,lazy -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,noseparate-code -Wl,-z,norelro \
  -Wl,--hash-style=gnu -Wl,--build-id=none -Wl,--version-script=agent/preload/exports.map -Wl,-soname,libcirron_agent.so
PRELOAD_O := $(B)/agent/preload/preload.o $(B)/agent/preload/symbol.o

# The programs read what strangers made.
HARD_CF := -fPIE $(if $(SAN),,-fstack-protector-strong -D_FORTIFY_SOURCE=2)
HARD_LD := -pie -Wl,-z,relro -Wl,-z,now
# Where a distribution keeps libraries of this machine's kind: lib/TRIPLET.
TRIPLET := $(or $(shell $(CC) -print-multiarch 2>/dev/null),x86_64-linux-gnu)

# What the agent shares with collectord: tensors are read, and written to files, by the same code.
AGENT_O := $(patsubst %.c,$(B)/%.o,$(wildcard agent/*.c)) $(patsubst %.c,$(B)/agent/%.o,$(wildcard proto/tensor_*.c proto/safetensors*.c))
PROTO_O := $(patsubst %.c,$(B)/%.o,$(wildcard proto/*.c))
GEN_O := $(B)/gen/proto/cirron.pb-c.o
COLL_O := $(patsubst %.c,$(B)/obj/%.o,$(wildcard collectord/*.c)) # build/collectord is the program, no folder
TOOL_O := $(patsubst %.c,$(B)/%.o,$(filter-out tools/extension.c,$(wildcard tools/*.c)))
RUN_O := $(patsubst %.c,$(B)/%.o,$(wildcard tools/run/*.c)) $(B)/tools/place.o
# The table `spans` for other programs: the same files, compiled so that they call the SQLite of the program that loads them.
EXT_C := tools/extension.c tools/vtab_spans.c tools/vtab_args.c tools/spans.c tools/spans_each.c tools/spans_moves.c tools/spans_names.c proto/block.c
EXT_O := $(patsubst %.c,$(B)/ext/%.o,$(EXT_C))

# The same file as a Python package, for programs that are not started under the preload: $(B)/python in PYTHONPATH.
PACKAGE := $(addprefix $(B)/python/cirron/,__init__.so __init__.pyi py.typed)

all: $(B)/libcirron_agent.so $(B)/libcirron_core.so $(PACKAGE) $(B)/collectord $(B)/cirron-query $(B)/cirron $(B)/libcirron_sqlite.so

# Whole or not at all: programs may be starting under them.
$(B)/libcirron_core.so: $(AGENT_O) agent/exports.map
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) $(AGENT_LD) -o $@.new $(AGENT_O) && mv $@.new $@
$(B)/libcirron_agent.so: $(PRELOAD_O) agent/preload/exports.map | $(B)/libcirron_core.so
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) $(PRELOAD_LD) -o $@.new $(PRELOAD_O) && mv $@.new $@

$(B)/python/cirron/__init__.so: | $(B)/libcirron_core.so
	@mkdir -p $(@D)
	$(Q)ln -sf ../../libcirron_core.so $@
$(B)/python/cirron/%: tools/dist/python/cirron/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

$(B)/collectord: $(COLL_O) $(PROTO_O) $(GEN_O)
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) -o $@ $^ $(HARD_LD) $(LD_D)

$(B)/cirron-query: $(TOOL_O) $(PROTO_O) $(GEN_O)
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) -o $@ $^ $(HARD_LD) $(LD_Q)

$(B)/cirron: $(RUN_O)
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) -o $@ $^ $(HARD_LD)

$(B)/libcirron_sqlite.so: $(EXT_O)
	@mkdir -p $(@D); echo "  LINK  $@"
	$(Q)$(CC) $(OPT) -shared -Wl,-z,now -Wl,-z,relro -Wl,-soname,libcirron_sqlite.so -o $@ $^ $(shell pkg-config --libs libzstd 2>/dev/null) -lpthread

$(B)/ext/%.o: %.c
	@mkdir -p $(@D); echo "  CC    $< (extension)"
	$(Q)$(CC) $(BASE) $(CF_Q) -fPIC -fvisibility=hidden -include tools/extension.h -c -o $@ $<

$(B)/agent/%.o: agent/%.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(BASE) $(AGENT_CF) $(AGENT_LTO) -c -o $@ $<

$(B)/agent/proto/%.o: proto/%.c
	@mkdir -p $(@D); echo "  CC    $< (agent)"
	$(Q)$(CC) $(BASE) $(AGENT_CF) $(AGENT_LTO) -c -o $@ $<

$(B)/obj/collectord/%.o: collectord/%.c $(B)/gen/proto/cirron.pb-c.h
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(BASE) $(HARD_CF) $(CF_D) -c -o $@ $<

$(B)/tools/command.o: $(B)/gen/proto/cirron.pb-c.h
$(B)/tools/%.o: tools/%.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(BASE) $(HARD_CF) -DCIRRON_TRIPLET='"$(TRIPLET)"' $(CF_Q) -c -o $@ $<

$(B)/proto/%.o: proto/%.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(BASE) $(HARD_CF) $(CF_D) -c -o $@ $<

$(B)/gen/proto/cirron.pb-c.c $(B)/gen/proto/cirron.pb-c.h &: proto/cirron.proto
	@mkdir -p $(B)/gen; echo "  GEN   $<"
	$(Q)protoc-c --c_out=$(B)/gen $<

$(GEN_O): $(B)/gen/proto/cirron.pb-c.c
	$(Q)$(CC) $(CSTD) $(OPT) -w -I$(B)/gen $(CF_D) -c -o $@ $<

# Unit tests: tests/unit/test_NAME.c, linked with what its first line names: // links: agent/x.c collectord/y.c
UNIT := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
unit: $(UNIT)
.SECONDEXPANSION:
unit-objects = $(patsubst $(B)/collectord/%,$(B)/obj/collectord/%,$(patsubst %.c,$(B)/%.o,$(shell sed -n '1s;^// links:;;p' tests/unit/$(1).c))) # no % may stand in the rule itself
$(B)/unit/%: tests/unit/%.c $$(call unit-objects,$$*) $(GEN_O)
	@mkdir -p $(@D); echo "  UNIT  $@"
	$(Q)$(CC) $(filter-out -Wmissing-prototypes,$(BASE)) $(CF_D) $(CF_Q) -o $@ $< $(filter %.o,$^) $$(pkg-config --libs cmocka) $(LD_D) $(LD_Q)

# Benches of the store are linked by their first line, too.
bench-objects = $(patsubst $(B)/collectord/%,$(B)/obj/collectord/%,$(patsubst %.c,$(B)/%.o,$(shell sed -n '1s;^// links:;;p' tests/bench/$(1).c)))
$(B)/bench/%: tests/bench/%.c $$(call bench-objects,$$*) $(GEN_O)
	@mkdir -p $(@D); echo "  BENCH $@"
	$(Q)$(CC) $(filter-out -Wmissing-prototypes,$(BASE)) $(CF_D) $(CF_Q) -o $@ $< $(filter %.o,$^) $(LD_D) $(LD_Q)

# Set-up: quick when nothing is missing. What it installs is found by pkg-config when make reads this file, so the targets that
# set up run make again for the rest.
AGAIN := $(MAKE) --no-print-directory
setup-build:
	$(Q)tests/setup/packages.sh build
setup-check: setup-build
	$(Q)tests/setup/packages.sh check
setup: setup-check
	$(Q)tests/setup/venv.sh

check: setup-check
	+$(Q)MAKE="$(MAKE)" tests/run_check.sh
check-long: setup-check
	+$(Q)MAKE="$(MAKE)" LONG=1 tests/run_check.sh
check-matrix: setup
	+$(Q)$(AGAIN) -s -j2 all fault
	$(Q)JUDGE="$(JUDGE)" DEBIAN_TORCH="$(DEBIAN_TORCH)" tests/run_matrix.sh
demo: setup-build
	$(Q)tests/setup/venv.sh
	+$(Q)$(AGAIN) all
	$(Q)B=$(B) tests/demo/run.sh
bench: setup
	+$(Q)$(AGAIN) all $(B)/span_cost $(B)/bench/tensor_bench
	$(Q)B=$(B) tests/bench/run.sh
lint: $(B)/gen/proto/cirron.pb-c.h
	$(Q)CF="$(CSTD) -D_GNU_SOURCE -DCIRRON_VERSION=\"0\" -DCIRRON_TRIPLET=\"t\" -I. -I$(B)/gen $(CF_D) $(CF_Q)" tests/run_lint.sh
format:
	$(Q)clang-format -i $(SOURCES)
e2e-%: all fault
	$(Q)B=$(B) tests/run_e2e.sh $*
judge: all
	$(Q)if [ -f "$(JUDGE)" ]; then python3 "$(JUDGE)" --agent $(B)/libcirron_agent.so --collectord $(B)/collectord \
	  --query $(B)/cirron-query --python $(CURDIR)/.venv/bin/python $(JUDGE_ARGS); \
	else echo "make judge: $(JUDGE) is not there, nothing judged"; fi

SOURCES = $(wildcard agent/*.[ch] agent/*/*.[ch] collectord/*.[ch] proto/*.[ch] tools/*.[ch] tools/*/*.[ch] tests/*/*.[ch] tests/*/*/*.[ch])

# The cost of a span in C, with the agent's own files; without init.c, whose constructor would look for an interpreter.
$(B)/span_cost $(B)/load_job: $(B)/%: tests/bench/%.c $(filter-out $(B)/agent/init.o,$(AGENT_O))
	@mkdir -p $(@D); echo "  BENCH $@"
	$(Q)$(CC) $(BASE) -o $@ $(filter %.c %.o,$^) -lpthread -ldl

# Programs of the tests that kill and fail on purpose: tests/fault.
FAULT := $(B)/kills_job $(B)/libfault.so
fault: $(FAULT)
$(B)/kills_job: tests/fault/kills/job.c $(filter-out $(B)/agent/init.o,$(AGENT_O))
	@mkdir -p $(@D); echo "  FAULT $@"
	$(Q)$(CC) $(BASE) -o $@ $(filter %.c %.o,$^) -lpthread -ldl
$(B)/libfault.so: tests/fault/collectord/fault.c
	@mkdir -p $(@D); echo "  FAULT $@"
	$(Q)$(CC) $(filter-out -Wmissing-prototypes,$(BASE)) -fPIC -shared -o $@ $<

# Fuzz targets: tests/fuzz/fuzz_NAME.c. Linked with what the first line names, ALL being the whole collector but main.c.
#   make fuzz-replay   each runs over its corpus once (tests/fuzz/run.sh build/fuzz)
#   make fuzz          with libFuzzer and sanitizers, into build/libfuzzer: build/libfuzzer/fuzz_ring -max_total_time=60 DIR tests/fuzz/corpus/ring
FUZZ := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz-sources = $(subst ALL,$(filter-out collectord/main.c,$(wildcard collectord/*.c proto/*.c)),$(shell sed -n '1s;^// links:;;p' tests/fuzz/$(1).c))
fuzz-objects = $(patsubst $(B)/collectord/%,$(B)/obj/collectord/%,$(patsubst %.c,$(B)/%.o,$(call fuzz-sources,$(1))))
fuzz-replay: $(FUZZ:%=$(B)/fuzz/%)
$(B)/fuzz/%: tests/fuzz/%.c tests/fuzz/replay.c $$(call fuzz-objects,$$*) $(GEN_O)
	@mkdir -p $(@D); echo "  FUZZ  $@"
	$(Q)$(CC) $(BASE) $(CF_D) -Icollectord -o $@ $(filter %.c %.o,$^) $(LD_D)
fuzz: $(FUZZ:%=$(B)/libfuzzer/%)
$(B)/libfuzzer/%: tests/fuzz/%.c $$(call fuzz-sources,$$*) $(wildcard tests/fuzz/*.h collectord/*.h proto/*.h) $(GEN_O)
	@mkdir -p $(@D); echo "  FUZZ  $@"
	$(Q)clang $(CSTD) -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -D_GNU_SOURCE \
	  -DCIRRON_VERSION='"$(VERSION)"' -I. -I$(B)/gen -Icollectord $(CF_D) -o $@ $(filter %.c %.o,$^) $(LD_D)

# Manual pages: what has to agree with the programs is taken from them.
MAN := $(addprefix $(B)/man/,cirron.1 cirron-query.1 collectord.8 cirron-settings.7)
$(B)/man/cirron.1: $(B)/cirron
$(B)/man/cirron-query.1: $(B)/cirron-query
$(B)/man/collectord.8: $(B)/collectord
$(B)/man/cirron-settings.7: docs/settings.md
$(B)/man/%: docs/man/%.in tools/dist/man.sh Makefile
	@mkdir -p $(@D); echo "  MAN   $@"
	$(Q)tools/dist/man.sh $< $(VERSION) $(filter $(B)/cirron $(B)/cirron-query $(B)/collectord,$^) $(if $(filter %/cirron.1,$@),run) >$@.new && mv $@.new $@
man: $(MAN)

install: all man
	$(Q)B="$(B)" DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" tools/dist/install.sh
# A binary package of this machine's kind: build/cirron_VERSION_ARCH.deb.
deb: all man
	$(Q)B="$(B)" VERSION="$(VERSION)" TRIPLET="$(TRIPLET)" tools/dist/deb/build.sh
# A wheel for every CPython from 3.8 on: build/cirron-VERSION-cp38-abi3-manylinux_X_Y_ARCH.whl.
wheel: $(B)/libcirron_agent.so
	$(Q)B="$(B)" VERSION="$(VERSION)" TRIPLET="$(TRIPLET)" tools/dist/wheel.sh

clean:
	rm -rf build

-include $(shell find $(B)/ -path build/san -prune -o -name '*.d' -print 2>/dev/null)
.PHONY: all unit fuzz fuzz-replay fault setup-build setup-check setup check check-long check-matrix demo bench lint format judge man install deb wheel clean
.DELETE_ON_ERROR:
