#include "session.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "cost.h"
#include "fd.h"
#include "glibc.h"
#include "hot.h"
#include "keep.h"
#include "link.h"
#include "loop.h"
#include "names.h"
#include "root.h"
#include "scope.h"
#include "segment.h"

#define MAX_RINGS 1024u
#define SPARE_CELLS (RING_MAX_CELLS) /* of all spare rings together: 64 MiB */
/* How long the end of a program waits for a private collector that is still starting. */
#define GOODBYE_PATIENCE_NS 1000000000ull

enum state { NONE, OPEN, CLOSING, CLOSED, FAILED };

HOT_DATA struct env session_env;

void (*_Atomic session_closing)(void);

static _Atomic int state = NONE;
static struct session session;
static uint64_t loaded_ns;
HOT_DATA static bool worker;
static _Atomic uint64_t next_id = SPAN_ROOT + 1; /* never begun anew: an id tells also which session's span it was */

/* The lock protects making a session and handing out rings: rare, short, never held over anything that waits. */
static atomic_flag lock = ATOMIC_FLAG_INIT;
static struct ring rings[MAX_RINGS]; /* untouched pages cost nothing */
static unsigned rings_made, spare_cells;
static struct ring *_Atomic first_ring;

static void lock_take(void) {
  while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
    sched_yield(); /* its owner may have a lower priority than we */
}

static void lock_drop(void) {
  atomic_flag_clear_explicit(&lock, memory_order_release);
}

static uint64_t wall_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void session_init(void) {
  loaded_ns = clock_system();
}

/* Both clocks at one instant: the tightest of a few bracketed readings. */
static void anchor(struct session *s) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 4; i++) {
    uint64_t before = clock_system(), wall = wall_ns(), after = clock_system();
    if (after - before < best) {
      best = after - before;
      s->anchor_monotonic_ns = before + (after - before) / 2;
      s->anchor_realtime_ns = wall;
    }
  }
}

/* Never Python's generator: a job's random numbers are its own. */
static uint64_t random_prefix(void) {
  uint64_t prefix = 0;
  while (prefix == 0) {
    if (syscall(SYS_getrandom, &prefix, sizeof prefix, 1 /* GRND_NONBLOCK */) != sizeof prefix)
      prefix = clock_system() * 0x9e3779b97f4a7c15ull ^ (uint64_t)getpid() << 40 ^ (uint64_t)wall_ns();
  }
  return prefix;
}

static int told_rank = -1, told_world_size = -1; /* by the script to its framework; under the GIL */

/* Spawned workers often set RANK for themselves before they train: what counts is the environment at their first span. */
static void publish_ranks(void) {
  struct ring_segment *segment = segment_get();
  struct env_ranks ranks = env_ranks();
  if (ranks.rank < 0)
    ranks.rank = told_rank;
  if (ranks.world_size < 0)
    ranks.world_size = told_world_size;
  __atomic_store_n(&segment->rank, ranks.rank, __ATOMIC_RELAXED);
  __atomic_store_n(&segment->local_rank, ranks.local_rank, __ATOMIC_RELAXED);
  __atomic_store_n(&segment->world_size, ranks.world_size, __ATOMIC_RELAXED);
  __atomic_store_n(&segment->ranks_known, 1, __ATOMIC_RELEASE);
}

void session_told_ranks(int rank, int world_size) {
  told_rank = rank;
  told_world_size = world_size;
  if (session_get())
    publish_ranks();
}

struct env_ranks session_ranks(void) {
  const struct ring_segment *segment = segment_get();
  struct env_ranks ranks = {.rank = -1, .local_rank = -1, .world_size = -1};
  if (segment && __atomic_load_n(&segment->ranks_known, __ATOMIC_ACQUIRE)) {
    ranks.rank = __atomic_load_n(&segment->rank, __ATOMIC_RELAXED);
    ranks.local_rank = __atomic_load_n(&segment->local_rank, __ATOMIC_RELAXED);
    ranks.world_size = __atomic_load_n(&segment->world_size, __ATOMIC_RELAXED);
  }
  return ranks;
}

static bool make(void) {
  struct session fresh = {.prefix = random_prefix(), .start_ns = loaded_ns};
  anchor(&fresh);
  fresh.by_messages = session_env.transport == ENV_TRANSPORT_SOCKET || !fd_size_allowed(RING_BYTES(session_env.ring_cells));
  if ((fresh.by_messages ? segment_open_private(fresh.prefix) : segment_open(fresh.prefix)) != 0)
    return false;
  fresh.by_messages = segment_fd() < 0; /* or memfd_create was refused */
  if (fresh.by_messages)
    env_debug("no memory is shared with the collector: records are sent as messages");
  fresh.root_name = segment_name("cirron.session", strlen("cirron.session"));
  names_make();
  session = fresh;
  publish_ranks();
  cost_to(&segment_get()->overhead_ns);
  atomic_store(&link_due_ns, 0);
  return true;
}

bool session_ensure(void) {
  int now = atomic_load_explicit(&state, memory_order_acquire);
  if (now == OPEN)
    return true;
  if (now != NONE || !session_env.enabled)
    return false;
  int saved = errno;
  lock_take();
  now = atomic_load(&state);
  if (now == NONE) {
    struct cost_timing cost = cost_rare();
    now = make() ? OPEN : FAILED;
    cost_end(&cost);
    atomic_store_explicit(&state, now, memory_order_release);
  }
  lock_drop();
  errno = saved;
  return now == OPEN;
}

const struct session *session_get(void) {
  int now = atomic_load_explicit(&state, memory_order_acquire);
  return now == OPEN || now == CLOSING ? &session : NULL;
}

const struct session *session_seen(void) {
  return session.prefix && atomic_load_explicit(&state, memory_order_acquire) != NONE ? &session : NULL;
}

void session_announce(void) {
  if (session_env.enabled && link_reachable() && session_ensure())
    link_tick(clock_system());
}

static struct ring *ring_free(bool spare) {
  for (struct ring *r = atomic_load(&first_ring); r; r = r->next)
    if (!r->in_use && r->spare == spare)
      return r;
  return NULL;
}

static int ring_open_next(bool spare, unsigned cells, struct ring *out) {
  if (session.by_messages)
    return ring_open_private(session.prefix, rings_made + 1, cells, spare, link_hurry, out);
  return spare ? ring_open_spare(session.prefix, rings_made + 1, cells, out)
               : ring_open(session.prefix, rings_made + 1, cells, out);
}

static struct ring *ring_make(bool spare, unsigned cells) {
  if (rings_made == MAX_RINGS)
    return NULL;
  struct ring *r = &rings[rings_made];
  if (ring_open_next(spare, cells, r) != 0)
    return NULL;
  if (!session.by_messages && rings_made == 0 && r->fd < 0) { /* the script has set a limit meanwhile */
    env_debug("rings cannot be shared: records are sent as messages");
    session.by_messages = true;
    r->hurry = link_hurry;
  }
  if (fd_many(link_connected() ? RING_WAITING : 0))
    ring_part(r);
  if (!spare)
    publish_ranks();
  rings_made++;
  r->next = atomic_load(&first_ring);
  atomic_store_explicit(&first_ring, r, memory_order_release);
  atomic_store(&link_due_ns, 0); /* hand it over soon */
  return r;
}

static struct ring *ring_take(bool spare, unsigned cells) {
  struct cost_timing cost = cost_rare();
  int saved = errno;
  lock_take();
  struct ring *r = ring_free(spare);
  if (!r && (!spare || spare_cells + cells <= SPARE_CELLS)) {
    r = ring_make(spare, cells);
    if (r && spare)
      spare_cells += cells;
  }
  if (r)
    r->in_use = true;
  lock_drop();
  errno = saved;
  cost_end(&cost);
  return r;
}

struct ring *session_ring_take(void) {
  return ring_take(false, session_env.ring_cells);
}

struct ring *session_ring_spare(void) {
  return session_env.ring_cells_max > session_env.ring_cells && link_reached() ? ring_take(true, session_env.ring_cells_max)
                                                                               : NULL;
}

void session_ring_give(struct ring *ring) {
  lock_take();
  ring->in_use = false;
  lock_drop();
}

struct ring *session_rings(void) {
  return atomic_load_explicit(&first_ring, memory_order_acquire);
}

bool session_span_open(uint64_t id) {
  for (const struct ring *r = session_rings(); r; r = r->next)
    for (unsigned i = 0; i < RING_OPEN_SLOTS && r->in_use; i++)
      if (__atomic_load_n(&r->open[i].id, __ATOMIC_RELAXED) == id)
        return true;
  return false;
}

void session_go_by_messages(void) {
  lock_take();
  session.by_messages = true;
  for (struct ring *r = atomic_load(&first_ring); r; r = r->next)
    __atomic_store_n(&r->hurry, link_hurry, __ATOMIC_RELAXED);
  lock_drop();
}

uint64_t session_take_ids(unsigned n) {
  return atomic_fetch_add_explicit(&next_id, n, memory_order_relaxed);
}

static void put_root(struct ring *ring, uint32_t tid, uint64_t end_ns) {
  struct ring_span root = {
      .type = RING_SPAN,
      .kind = SPAN_SESSION,
      .name = session.root_name,
      .id = SPAN_ROOT,
      .start_ns = session.start_ns,
      .end_ns = end_ns,
      .index = SPAN_NO_INDEX,
      .cpu_ns = SPAN_NO_TIME,
  };
  char attrs[ROOT_ATTRS_BYTES];
  size_t len = root_attributes(attrs);
  if (ring_append(ring, &root, attrs, len, NULL, 0, true))
    ring_count_emitted(ring->shm, RING_SPAN);
  else /* for the record alone there is room */
    ring_put(ring, &root, NULL, 0, NULL, 0, true);
  if (keep_wanted())
    keep_put(&root, tid, attrs, len, NULL, 0);
}

/* The root's record may come from any ring: a program whose spans were all made by other threads has none on this one. One without
 * spans, as most that Python starts, is not to pay for room that nobody will use. */
static void close_root(void) {
  struct ring *ring = ring_take(false, session_rings() ? session_env.ring_cells : RING_MIN_CELLS);
  if (!ring)
    return;
  struct ring_thread thread = {.type = RING_THREAD, .tid = (uint32_t)syscall(SYS_gettid), .ts_ns = clock_system()};
  ring_put(ring, &thread, NULL, 0, NULL, 0, true);
  put_root(ring, thread.tid, clock_system());
  session_ring_give(ring);
}

void session_close(void) {
  int open = OPEN;
  if (atomic_load_explicit(&state, memory_order_relaxed) != OPEN) /* most programs: not a page of ours is written to */
    return;
  if (!atomic_compare_exchange_strong(&state, &open, CLOSING))
    return;
  int saved = errno;
  struct cost_timing cost = cost_rare();
  scope_end_session();
  close_root();
  void (*closing)(void) = atomic_load(&session_closing);
  if (closing)
    closing();
  cost_end(&cost); /* before the collector looks for the last time */
  cost_again(&cost);
  link_goodbye(GOODBYE_PATIENCE_NS);
  cost_end(&cost);
  atomic_store(&state, CLOSED);
  errno = saved;
}

bool session_ended(void) {
  int now = atomic_load(&state);
  return now == NONE || now == CLOSED;
}

void session_forget(void) {
  for (struct ring *r = atomic_load(&first_ring); r;) {
    struct ring *next = r->next;
    ring_unmap(r);
    memset(r, 0, sizeof *r);
    r = next;
  }
  atomic_store(&first_ring, NULL);
  rings_made = spare_cells = 0;
  link_forget();
  cost_forget(); /* its counter is in the segment */
  segment_forget();
  atomic_flag_clear(&lock); /* whoever held it does not exist here */
  loop_forget();
  root_forget();
  session.prefix = 0;
  loaded_ns = clock_system();
  int now = atomic_load(&state);
  atomic_store(&state, now == FAILED ? FAILED : NONE);
}

void session_set_worker(void) {
  worker = true;
}

bool session_is_worker(void) {
  return worker;
}
