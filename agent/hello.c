/* See hello.h. Texts are bytes as they are and cut to bounds that keep the whole message below LINK_MAX_MESSAGE. */
#include "hello.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "../proto/link_abi.h"
#include "env.h"
#include "py.h"
#include "segment.h"

enum { /* field numbers of proto/cirron.proto */
       ENVELOPE_HELLO = 1,
       HELLO_ABI_MAJOR = 1,
       HELLO_ABI_MINOR,
       HELLO_AGENT_VERSION,
       HELLO_SESSION,
       HELLO_PID,
       HELLO_PPID,
       HELLO_HOST,
       HELLO_EXE,
       HELLO_ARGV,
       HELLO_CWD,
       HELLO_PYTHON_VERSION,
       HELLO_RANK,
       HELLO_LOCAL_RANK,
       HELLO_WORLD_SIZE,
       HELLO_RUN_ID,
       HELLO_ATTRIBUTES,
       HELLO_ANCHOR_MONOTONIC,
       HELLO_ANCHOR_REALTIME,
       HELLO_START_MONOTONIC,
       HELLO_START_TICKS,
       HELLO_BY_MESSAGES,
       HELLO_SEGMENT_ADDRESS,
       ATTRIBUTE_NAME = 1,
       ATTRIBUTE_VALUE = 2,
};

#define ARGV_MAX_ENTRIES 64
#define ARGV_MAX_BYTES 4096
#define PATH_MAX_BYTES 2048
#define RUN_ID_MAX_BYTES 256
#define ATTRIBUTE_MAX_BYTES 128
#define OTHER_MAX_BYTES 1024 /* numbers, host, versions, tags and lengths */

/* Ids that the launchers give: sent as attributes under their own names. */
static const char *const launcher_ids[] = {
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "GROUP_RANK",
    "ROLE_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_STEP_ID",
    "SLURM_NODEID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "CIRRON_OVERHEAD_CHECK", /* the session lacks steps */
};
#define LAUNCHER_IDS (sizeof(launcher_ids) / sizeof(launcher_ids[0]))

_Static_assert(ARGV_MAX_BYTES + 4 * ARGV_MAX_ENTRIES + 2 * PATH_MAX_BYTES + RUN_ID_MAX_BYTES +
                       LAUNCHER_IDS * (ATTRIBUTE_MAX_BYTES + 40) + OTHER_MAX_BYTES <
                   LINK_MAX_MESSAGE,
               "the longest Hello is a message");

/* Up to `size` bytes of a small file; 0 where it cannot be read. */
static size_t file_read(const char *path, char *buf, size_t size) {
  size_t len = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  for (ssize_t n; len < size && (n = read(fd, buf + len, size - len)) > 0;)
    len += (size_t)n;
  close(fd);
  return len;
}

static void write_argv(struct pbwrite *pb) {
  char args[ARGV_MAX_BYTES];
  size_t len = file_read("/proc/self/cmdline", args, sizeof(args));
  unsigned entries = 0;
  for (size_t at = 0; at < len && entries < ARGV_MAX_ENTRIES; entries++) {
    size_t n = strnlen(args + at, len - at);
    pbwrite_element(pb, HELLO_ARGV, args + at, n);
    at += n + 1;
  }
}

static void write_paths(struct pbwrite *pb) {
  char path[PATH_MAX_BYTES];
  ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n > 0)
    pbwrite_bytes(pb, HELLO_EXE, path, (size_t)n);
  if (getcwd(path, sizeof(path))) /* a longer one is left out: half a path names another folder */
    pbwrite_text(pb, HELLO_CWD, path);
}

/* "3.11.7 (main, Jan  1 2024, ...) [GCC ...]": up to the first blank. */
static void write_python_version(struct pbwrite *pb) {
  const char *version = py.Py_GetVersion ? py.Py_GetVersion() : NULL;
  if (version)
    pbwrite_bytes(pb, HELLO_PYTHON_VERSION, version, strnlen(version, strcspn(version, " ") < 32 ? strcspn(version, " ") : 32));
}

static void write_host(struct pbwrite *pb) {
  struct utsname name;
  if (uname(&name) == 0)
    pbwrite_text(pb, HELLO_HOST, name.nodename);
}

static void write_attributes(struct pbwrite *pb) {
  for (size_t i = 0; i < LAUNCHER_IDS; i++) {
    const char *value = getenv(launcher_ids[i]);
    if (!value || !*value)
      continue;
    size_t begin = pbwrite_begin(pb, HELLO_ATTRIBUTES);
    pbwrite_text(pb, ATTRIBUTE_NAME, launcher_ids[i]);
    pbwrite_bytes(pb, ATTRIBUTE_VALUE, value, strnlen(value, ATTRIBUTE_MAX_BYTES));
    pbwrite_end(pb, begin);
  }
}

/* Field 22 of /proc/self/stat. The second one, the command in brackets, may hold blanks and brackets itself. */
static uint64_t start_ticks(void) {
  char stat[1024];
  size_t len = file_read("/proc/self/stat", stat, sizeof(stat) - 1);
  stat[len] = '\0';
  char *at = strrchr(stat, ')');
  for (int field = 2; at && field < 22; field++)
    at = strchr(at + 1, ' ');
  uint64_t ticks = 0;
  for (at = at ? at + 1 : NULL; at && *at >= '0' && *at <= '9'; at++)
    ticks = ticks * 10 + (uint64_t)(*at - '0');
  return ticks;
}

void hello_write(struct pbwrite *pb, const struct session *session) {
  struct env_ranks ranks = env_ranks();
  const char *run_id = env_run_id();
  size_t begin = pbwrite_begin(pb, ENVELOPE_HELLO);
  pbwrite_uint(pb, HELLO_ABI_MAJOR, RING_ABI_MAJOR);
  pbwrite_uint(pb, HELLO_ABI_MINOR, RING_ABI_MINOR);
  pbwrite_text(pb, HELLO_AGENT_VERSION, CIRRON_VERSION);
  pbwrite_fixed64(pb, HELLO_SESSION, session->prefix);
  pbwrite_uint(pb, HELLO_PID, (uint64_t)getpid());
  pbwrite_uint(pb, HELLO_PPID, (uint64_t)getppid());
  write_host(pb);
  write_argv(pb);
  write_paths(pb);
  write_python_version(pb);
  pbwrite_int(pb, HELLO_RANK, ranks.rank);
  pbwrite_int(pb, HELLO_LOCAL_RANK, ranks.local_rank);
  pbwrite_int(pb, HELLO_WORLD_SIZE, ranks.world_size);
  pbwrite_bytes(pb, HELLO_RUN_ID, run_id, strnlen(run_id, RUN_ID_MAX_BYTES));
  write_attributes(pb);
  pbwrite_uint(pb, HELLO_ANCHOR_MONOTONIC, session->anchor_monotonic_ns);
  pbwrite_uint(pb, HELLO_ANCHOR_REALTIME, session->anchor_realtime_ns);
  pbwrite_uint(pb, HELLO_START_MONOTONIC, session->start_ns);
  pbwrite_uint(pb, HELLO_START_TICKS, start_ticks());
  if (session->by_messages) {
    pbwrite_uint(pb, HELLO_BY_MESSAGES, 1);
    pbwrite_uint(pb, HELLO_SEGMENT_ADDRESS, (uintptr_t)segment_get());
  }
  pbwrite_end(pb, begin);
}
