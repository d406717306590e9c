/* The agent's settings, from CIRRON_* and the launchers' variables (docs/settings.md). One table parses, checks and names them. */
#ifndef CIRRON_ENV_H
#define CIRRON_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum env_cpu_time { ENV_CPU_AUTO, ENV_CPU_ON, ENV_CPU_OFF };
enum env_transport { ENV_TRANSPORT_AUTO, ENV_TRANSPORT_SOCKET };

#define ENV_FRAMEWORKS "torch|tensorflow|keras|transformers|sklearn|lightning"
#define ENV_SINKS "spool|stdout|log|none"
enum { /* bits, in the order of the words */
       ENV_TORCH = 1,
       ENV_TENSORFLOW = 2,
       ENV_KERAS = 4,
       ENV_TRANSFORMERS = 8,
       ENV_LIGHTNING = 32,
       ENV_FRAMEWORKS_ALL = 63,
       ENV_SPOOL = 1,
};
enum env_snapshots { ENV_STATS, ENV_SAMPLED, ENV_FULL, ENV_SNAPSHOTS_OFF };

struct env {
  bool enabled;            /* CIRRON_ENABLED */
  bool autostart;          /* CIRRON_AUTOSTART: a private collectord where none is there */
  bool workers;            /* CIRRON_WORKERS: fetch spans of DataLoader workers */
  bool overhead_check;     /* CIRRON_OVERHEAD_CHECK: blocks of steps that are not observed, to compare with */
  bool debug;              /* CIRRON_DEBUG: say on stderr what the agent decides */
  char socket[108];        /* CIRRON_SOCKET, made absolute, or empty */
  bool offline;            /* CIRRON_SOCKET names a path no socket can have: look for no collector */
  unsigned ring_cells;     /* CIRRON_RING_BYTES / 64, a power of two */
  unsigned ring_cells_max; /* CIRRON_RING_BYTES_MAX / 64, of a spare ring; none where it is not more than ring_cells */
  double max_overhead;     /* CIRRON_MAX_OVERHEAD, per cent; 0: no bound */
  unsigned module_depth;   /* CIRRON_MODULE_DEPTH */
  enum env_cpu_time cpu_time;
  enum env_transport transport;
  enum env_snapshots snapshots; /* CIRRON_SNAPSHOTS; this and the next two are defaults of profile() */
  double sample_rate;           /* CIRRON_SAMPLE_RATE, 0 to 1 */
  unsigned snapshot_steps;      /* CIRRON_SNAPSHOT_STEPS: also after so many steps; 0: no */
  unsigned snapshot_wait_ms;    /* CIRRON_SNAPSHOT_WAIT_MS: how long the training waits at most for who reads */
  uint64_t snapshot_max_bytes;  /* CIRRON_SNAPSHOT_MAX_BYTES: of all raw tensors on disk */
  uint64_t sample_seed;         /* CIRRON_SAMPLE_SEED; 0: none */
  double flush_interval;        /* CIRRON_FLUSH_INTERVAL, seconds */
  unsigned frameworks;          /* CIRRON_FRAMEWORKS: those that are observed, bits of ENV_FRAMEWORKS */
  unsigned output;              /* CIRRON_OUTPUT, default of profile(): bits of ENV_SINKS */
  uint64_t spool_max_bytes;     /* CIRRON_SPOOL_MAX_BYTES, the same */
  uint32_t set;                 /* env_is_set() */
};

/* Reads the settings. A bad value: one line on stderr that names it and what is allowed, and the default holds. Called once an
 * interpreter is found, so that other programs print nothing. No allocation. */
void env_read(struct env *out);

/* Was CIRRON_<name>, one of the settings, set to anything? Also to what is not allowed: then what was said to be used holds. */
bool env_is_set(const struct env *env, const char *name);

#define ENV_PATH_MAX 4000u /* bytes of CIRRON_OUTPUT_DIR: names of files come behind it */

/* Of the settings only whether env_debug is to speak, for an interpreter that is left alone; complains of nothing. */
void env_read_debug(void);

/* RANK, LOCAL_RANK, WORLD_SIZE, else SLURM_PROCID, SLURM_LOCALID, SLURM_NTASKS; -1 where not set. Read when training starts. */
struct env_ranks {
  int rank, local_rank, world_size;
};
struct env_ranks env_ranks(void);

/* The one number that a span is told apart by. */
static inline int env_rank(const struct env_ranks *ranks) {
  return ranks->rank >= 0 ? ranks->rank : ranks->local_rank >= 0 ? ranks->local_rank : 0;
}

/* CIRRON_RUN_ID, else TORCHELASTIC_RUN_ID, else SLURM_JOB_ID, else "". */
const char *env_run_id(void);

/* The bit of a framework in ENV_FRAMEWORKS; 0: there is none of that name. */
unsigned env_framework(const char *name, size_t len);

/* One line on stderr, prefixed "cirron: ", for what a user has to know. Safe anywhere. */
void env_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Was it said before that something cannot be written below output_dir? From now on it was: one line is enough, whatever else cannot. */
bool env_told_of_output(void);
void env_tell_of_output_again(void); /* other settings hold */

/* For CIRRON_DEBUG: one line, prefixed "cirron: ", by one write(2) to descriptor 2. Safe anywhere. */
void env_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
