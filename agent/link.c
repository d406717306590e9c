/* See link.h.
 *
 * States of the connection, all under `busy`:
 *
 *   off ──connect, Hello──► up ──hang-up, descriptor lost, send failed──► off
 *    └─ nobody there, autostart ─► starting (off, asked every 20 ms for 2 s) ─► off
 *
 * A send that does not go through at once ends the connection, because half a message cannot be taken back; only a RingAttach of
 * which nothing was sent waits for the next tick instead (many threads at once fill the socket faster than it is read).
 * Where the memory is not shared (session.by_messages), all that follows the Hello goes through the buffer of pump.c, which keeps
 * what the socket does not take.
 * What a collector sends is read and thrown away, but for what pump.c waits for.
 */
#include "link.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../proto/link_abi.h"
#include "clock.h"
#include "cost.h"
#include "env.h"
#include "fd.h"
#include "hot.h"
#include "launch.h"
#include "link_say.h"
#include "link_socket.h"
#include "pump.h"
#include "segment.h"
#include "session.h"

#define MS 1000000ull
#define PERIOD_NS (100 * MS)        /* between looks at a living connection */
#define SENDING_PERIOD_NS (25 * MS) /* the same where records are sent: what SIGKILL can take */
#define BLOCKED_PERIOD_NS (10 * MS) /* the socket was full */
#define UNASKED_MAX 50u             /* such looks in a row that need no system call, */
#define STILL_MAX 3u                /* of which so many find nothing new committed: that is done every 250 ms */
#define STARTING_PERIOD_NS (20 * MS)
#define STARTING_NS (2000 * MS)  /* a private collector listens within this time, or does not at all */
#define PAUSE_MAX_NS (5000 * MS) /* between attempts: PERIOD_NS, doubled up to this */
#define PROVEN_NS (1000 * MS)    /* a connection that ends sooner was refused, unless records were taken: counts as a failure */
#define AWAITED_NS (5000 * MS)   /* after the end of a collector that worked: no growing pauses, as rings fill */
#define LAUNCH_LIMIT 3           /* private collectors started for one session */
#define GOODBYE_STEP_NS (5 * (long)MS)
#define LAST_PASSES 64u
#define GOODBYE_STALL_NS (300 * MS) /* who takes nothing of the last records for so long is no collector that works */

HOT_DATA _Atomic uint64_t link_due_ns;
_Atomic uint64_t link_also_ns = UINT64_MAX;
void (*_Atomic link_also)(uint64_t now_ns);

static _Atomic bool blocked; /* the socket takes nothing more at the moment */

/* How much this connection had taken when a flush gave it up; UINT64_MAX: none has. */
static _Atomic uint64_t stalled_at = UINT64_MAX;

static atomic_flag busy = ATOMIC_FLAG_INIT; /* protects everything below; never waited for, a leaf but for launch and segment */

static struct {
  struct owned_fd socket;
  uint64_t connected_ns;
  uint64_t tails;       /* of all rings, when it was made: who moves them has committed records */
  uint64_t seen_tails;  /* the same at the last look */
  unsigned unasked;     /* looks since one that asked the system, */
  unsigned still;       /* and since the tails moved */
  uint64_t awaited_ns;  /* until then the next collector is expected soon */
  unsigned failures;    /* attempts in a row that reached nobody */
  uint64_t launched_ns; /* a private collector was started then and may be about to listen; 0: none is */
  unsigned launches;
  bool launch_refused;            /* it cannot be started here, whatever the time */
  uint64_t next_ns;               /* when link_work is to be called next, */
  uint64_t also_ns;               /* and link_due_ns where it was set for the sake of link_also; 0: it was not */
  bool ended;                     /* Goodbye was said */
  bool by_messages;               /* as the Hello said */
  bool goodbye_put;               /* it is in pump.c's buffer */
  struct say_snapshots snapshots; /* what of them this connection has been told */
  uint64_t taken;                 /* bytes of messages that this connection has taken */
  uint64_t most;                  /* that any has since Goodbye is tried, */
  uint64_t most_ns;               /* and since when */
  sun_path private_path;          /* of the private collector, once it was made */
} state = {.socket = {.fd = -1}};

static bool take(void) {
  return !atomic_flag_test_and_set_explicit(&busy, memory_order_acquire);
}

static void give(void) {
  atomic_flag_clear_explicit(&busy, memory_order_release);
}

/* Empties pump.c's buffer. -EAGAIN: the rest later. */
static int send_pending(void) {
  const uint8_t *data;
  size_t len;
  while (data = pump_pending(&len), len) {
    if (!fd_ours(&state.socket))
      return -EBADF;
    ssize_t n = send(state.socket.fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
      return errno == EINTR ? -EAGAIN : -errno;
    pump_sent((size_t)n);
    state.taken += (uint64_t)n;
  }
  return 0;
}

/* The connection. */

static void disconnect(void) {
  fd_drop(&state.socket);
  for (struct ring *ring = session_rings(); ring; ring = ring->next)
    ring->attached = false;
  state.snapshots = (struct say_snapshots){0};
}

/* Errors of a send that its descriptor is to blame for. */
static bool passing_refused(int r) {
  return r == -EPERM || r == -EACCES || r == -EINVAL || r == -ENOSYS || r == -EOPNOTSUPP || r == -ETOOMANYREFS;
}

/* How far all rings together are committed. */
static uint64_t tails_now(void) {
  uint64_t sum = 0;
  for (const struct ring *ring = session_rings(); ring; ring = ring->next)
    sum += __atomic_load_n(&ring->shm->tail, __ATOMIC_RELAXED);
  return sum;
}

/* Connects and says Hello. `path` is a whole sun_path. */
static int try_path(const char *path, uint64_t now_ns) {
  int r = link_socket_connect(path, &state.socket);
  if (r < 0)
    return r;
  r = say_hello(&state.socket);
  if (passing_refused(r) && !state.connected_ns && !session_get()->by_messages) {
    env_debug("descriptors cannot be passed to %s (error %d): records are sent as messages", path, -r);
    session_go_by_messages();
    r = say_hello(&state.socket);
  }
  if (r < 0) {
    env_debug("%s: no Hello: error %d", path, -r);
    disconnect();
    return r;
  }
  env_debug("connected to %s", path);
  state.connected_ns = now_ns;
  state.tails = state.seen_tails = tails_now();
  state.still = STILL_MAX;
  state.launched_ns = 0;
  state.by_messages = session_get()->by_messages;
  state.goodbye_put = false;
  state.taken = 0;
  atomic_store_explicit(&blocked, false, memory_order_relaxed);
  atomic_store(&stalled_at, UINT64_MAX);
  pump_restart();
  return 0;
}

static bool user_path(sun_path out) {
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  memset(out, 0, sizeof(sun_path));
  return runtime && runtime[0] == '/' &&
         snprintf(out, sizeof(sun_path), "%s/" LINK_USER_SOCKET, runtime) < (int)sizeof(sun_path);
}

bool link_reachable(void) {
  int saved = errno;
  sun_path user;
  bool there = session_env.socket[0] ? access(session_env.socket, F_OK) == 0
                                     : (user_path(user) && access(user, F_OK) == 0) || access(LINK_SYSTEM_SOCKET, F_OK) == 0;
  errno = saved;
  return there && !session_env.offline;
}

static int reach_user(uint64_t now_ns) {
  sun_path path;
  return user_path(path) ? try_path(path, now_ns) : -ENOENT;
}

static int reach_system(uint64_t now_ns) {
  sun_path path = LINK_SYSTEM_SOCKET;
  return try_path(path, now_ns);
}

static bool nobody_there(int r) {
  return r == -ENOENT || r == -ECONNREFUSED;
}

static int reach_private(uint64_t now_ns) {
  int r = state.private_path[0] ? 0 : launch_socket_path(state.private_path, sizeof(state.private_path));
  if (r < 0) {
    env_debug("no place for the socket of a private collector: error %d", -r);
    state.private_path[0] = '\0';
    state.launch_refused = true;
    return r;
  }
  r = try_path(state.private_path, now_ns);
  if (!nobody_there(r) || state.launches == LAUNCH_LIMIT)
    return r;
  state.launches++;
  int started = launch_collector(state.private_path);
  state.launch_refused = started < 0;
  state.launched_ns = started < 0 ? 0 : now_ns;
  return r;
}

static bool starting(uint64_t now_ns) {
  if (state.launched_ns && now_ns - state.launched_ns >= STARTING_NS) {
    env_debug("the private collector does not listen on %s", state.private_path);
    state.launched_ns = 0;
  }
  return state.launched_ns != 0;
}

/* The collectors in their order. */
static int reach(uint64_t now_ns) {
  if (session_env.offline)
    return -ENOENT;
  if (session_get()->by_messages ? fd_none() : segment_fd() < 0 && segment_renew() < 0)
    return -ENOTSUP; /* there is nothing that a collector could read */
  if (session_env.socket[0])
    return try_path(session_env.socket, now_ns);
  if (starting(now_ns))
    return try_path(state.private_path, now_ns);
  int r = reach_user(now_ns);
  if (r < 0)
    r = reach_system(now_ns);
  if (r < 0 && session_env.autostart && !state.launch_refused && session_rings()) /* for spans only */
    r = reach_private(now_ns);
  return r;
}

/* Reads what the collector sent. False: it hung up, or is none. */
static bool peer_there(void) {
  uint8_t buf[512];
  for (int i = 0; i < 8; i++) {
    ssize_t n = recv(state.socket.fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0)
      return errno == EAGAIN || errno == EINTR;
    if (n == 0 || (session_get()->by_messages && !pump_heard(buf, (size_t)n)))
      return false;
  }
  return true;
}

/* The collector is gone. Killed, or did it let go of us because it does not want us? One that has committed records did its work. */
static void collector_gone(uint64_t now_ns) {
  bool proven = now_ns - state.connected_ns >= PROVEN_NS || tails_now() != state.tails;
  state.failures = proven ? 0 : state.failures + 1;
  state.awaited_ns = proven ? now_ns + AWAITED_NS : 0;
}

/* Is there a connection, and is it alive? A lost one is given up here. */
static bool connection_alive(uint64_t now_ns) {
  if (state.socket.fd < 0)
    return false;
  if (state.by_messages != session_get()->by_messages) { /* to be said anew */
    disconnect();
    return false;
  }
  bool ours = fd_ours(&state.socket);
  if (ours && peer_there())
    return true;
  env_debug("%s", ours ? "the collector hung up" : "the script closed the connection");
  disconnect();
  if (ours)
    collector_gone(now_ns);
  else
    state.failures = 0;
  return false;
}

/* A ring without its descriptor - the script closed it, or we did - needs a new one, which only its writer can make; `last`:
 * nobody writes any more. */
static bool ring_ready(struct ring *ring, bool last) {
  bool asked = __atomic_load_n(&ring->renew, __ATOMIC_ACQUIRE);
  if (!asked) {
    struct owned_fd owned = {.fd = ring->fd, .dev = ring->dev, .ino = ring->ino};
    if (fd_ours(&owned))
      return true;
    if (owned.fd < 0 && !ring->parted)
      return false; /* private memory */
  }
  if (last) /* its descriptor is given up again as soon as it is sent */
    ring_renew_now(ring);
  else if (!asked)
    __atomic_store_n(&ring->renew, true, __ATOMIC_RELEASE);
  return last && ring->fd >= 0;
}

/* Hands over the rings that the collector does not have yet. 0: all that can be; -EAGAIN: the rest later; else the connection is gone. */
static int attach_rings(bool last) {
  for (struct ring *ring = session_rings(); ring; ring = ring->next) {
    if (ring->attached || !ring_ready(ring, last))
      continue;
    int r = say_ring(&state.socket, ring);
    if (r == -EAGAIN)
      return r;
    if (r < 0) {
      env_debug("the connection broke: error %d", -r);
      disconnect();
      return r;
    }
    ring->attached = true;
    if (fd_many(0))
      ring_part(ring);
  }
  return 0;
}

/* The same of all that is shared. */
static int hand_over(bool last) {
  int r = attach_rings(last);
  if (r < 0)
    return r;
  r = say_snapshots(&state.socket, &state.snapshots);
  if (r < 0 && r != -EAGAIN) {
    env_debug("the connection broke: error %d", -r);
    disconnect();
  }
  return r;
}

static int send_pass(void) {
  int r = 0;
  for (bool through = false; r == 0 && !through;) {
    through = pump_fill();
    r = send_pending();
  }
  return r;
}

/* How much of the rings a send is to have dealt with: what a pass comes by, all, or all with Goodbye behind it. */
enum extent { ONE_PASS, ALL, ALL_AND_GOODBYE };

/* Sends what lies in the rings, as much as the socket takes. As attach_rings. The first pass may have been begun long ago; who writes
 * without end is not waited for. */
static int send_records(enum extent extent) {
  int r = state.goodbye_put ? send_pending() : 0;
  for (unsigned pass = 0; r == 0 && !state.goodbye_put && pass < (extent == ONE_PASS ? 1 : LAST_PASSES); pass++) {
    if (pass > 1 && pump_complete())
      break;
    r = send_pass();
  }
  if (r == 0 && extent == ALL_AND_GOODBYE && !state.goodbye_put) { /* all was sent: there is room */
    state.goodbye_put = pump_goodbye();
    r = send_pending();
  }
  atomic_store_explicit(&blocked, r == -EAGAIN, memory_order_relaxed);
  if (r < 0 && r != -EAGAIN) {
    env_debug("the connection broke: error %d", -r);
    disconnect();
  }
  return r;
}

void link_hurry(void) {
  if (link_connected() && !atomic_load_explicit(&blocked, memory_order_relaxed))
    atomic_store_explicit(&link_due_ns, 0, memory_order_relaxed);
}

static uint64_t pause_ns(void) {
  uint64_t pause = PERIOD_NS << (state.failures < 6 ? state.failures : 6);
  return pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS;
}

/* Somebody commits what is written, and has all rings: the system need not be asked. Now and then it is all the same, so that what was
 * sent to us does not pile up. */
static bool all_is_well(void) {
  uint64_t tails = tails_now();
  state.still = tails != state.seen_tails ? 0 : state.still + 1;
  state.seen_tails = tails;
  bool well = state.still < STILL_MAX && state.unasked < UNASKED_MAX && state.socket.fd >= 0 && !state.by_messages &&
              !session_get()->by_messages;
  for (struct ring *ring = session_rings(); ring && well; ring = ring->next)
    well = ring->attached;
  well = well && !say_snapshots_wait(&state.snapshots);
  state.unasked = well ? state.unasked + 1 : 0;
  return well;
}

/* One look at everything. Returns how long until the next one. */
static uint64_t link_work(uint64_t now_ns) {
  if (all_is_well())
    return PERIOD_NS;
  bool was_up = state.socket.fd >= 0;
  if (!connection_alive(now_ns)) {
    if (was_up && state.failures > 0)
      return pause_ns(); /* it took us and let us go: not at once again */
    if (reach(now_ns) < 0) {
      if (state.launched_ns)
        return STARTING_PERIOD_NS;
      uint64_t pause = pause_ns();
      state.failures += now_ns >= state.awaited_ns;
      return pause;
    }
  } else if (now_ns - state.connected_ns >= PROVEN_NS) {
    state.failures = 0;
  }
  if (session_get()->by_messages) {
    int r = send_records(ONE_PASS);
    if (r < 0 && r != -EAGAIN)
      collector_gone(now_ns);
    /* A DataLoader ends its workers by os._exit, without a word: each of their few spans is sent at its end. */
    return r == 0 ? session_is_worker() ? 0 : SENDING_PERIOD_NS : r == -EAGAIN ? BLOCKED_PERIOD_NS : pause_ns();
  }
  int r = hand_over(false);
  if (r < 0 && r != -EAGAIN)
    collector_gone(now_ns);
  return r == 0 ? PERIOD_NS : r == -EAGAIN ? STARTING_PERIOD_NS : pause_ns();
}

static void also(uint64_t now_ns) {
  void (*work)(uint64_t) = atomic_load_explicit(&link_also, memory_order_acquire);
  if (work && now_ns >= atomic_load_explicit(&link_also_ns, memory_order_relaxed))
    work(now_ns);
}

/* When link_work is to be called next; not now where it is early and only link_also was due. */
static uint64_t work(uint64_t was_due_ns, uint64_t now_ns) {
  if (state.ended || !session_get())
    return UINT64_MAX;
  if (state.also_ns && was_due_ns == state.also_ns && now_ns < state.next_ns)
    return state.next_ns;
  return now_ns + link_work(now_ns);
}

void link_tick(uint64_t now_ns) {
  struct cost_timing cost = cost_rare();
  int saved = errno;
  also(now_ns);
  if (take()) {
    uint64_t due = now_ns + PERIOD_NS, was_due_ns = atomic_exchange(&link_due_ns, due);
    uint64_t next = work(was_due_ns, now_ns), also_ns = atomic_load(&link_also_ns);
    state.next_ns = next;
    state.also_ns = also_ns < next ? also_ns : 0;
    next = also_ns < next ? also_ns : next;
    atomic_compare_exchange_strong(&link_due_ns, &due, next); /* another thread may have a new ring: then it is due again */
    give();
  }
  errno = saved;
  cost_end(&cost);
}

void link_snapshot(void) {
  atomic_store(&link_due_ns, 0);
  link_tick(clock_system());
}

/* Flush. */

/* 0: all was sent, or there is nobody to send to. -EAGAIN: the rest later. `now_taken`: by this connection, up to now. */
static int flush_step(uint64_t *now_taken) {
  if (!take())
    return -EAGAIN;
  uint64_t now_ns = clock_system();
  int r = state.ended || !session_get() || !session_get()->by_messages || !connection_alive(now_ns) ? 0 : send_records(ALL);
  if (r < 0 && r != -EAGAIN)
    collector_gone(now_ns);
  *now_taken = state.taken;
  give();
  return r;
}

/* A peer that took nothing for GOODBYE_STALL_NS is not waited for again before it has. */
static void send_all(uint64_t patience_ns, void (*nap)(const struct timespec *time)) {
  uint64_t begun_ns = clock_system(), now_ns = begun_ns, moved_ns = begun_ns, before = 0, taken = 0;
  while (flush_step(&taken) == -EAGAIN) {
    now_ns = clock_system();
    if (taken != before)
      moved_ns = now_ns;
    before = taken;
    if (taken == atomic_load(&stalled_at) || now_ns - begun_ns >= patience_ns)
      return;
    if (now_ns - moved_ns >= GOODBYE_STALL_NS)
      break;
    nap(&(struct timespec){.tv_nsec = GOODBYE_STEP_NS});
  }
  atomic_store(&stalled_at, now_ns - moved_ns >= GOODBYE_STALL_NS ? taken : UINT64_MAX);
}

static void nap_plainly(const struct timespec *time) {
  nanosleep(time, NULL);
}

void link_flush(uint64_t patience_ns, void (*nap)(const struct timespec *time)) {
  int saved = errno;
  link_tick(clock_system());
  if (session_get() && session_get()->by_messages) {
    struct cost_timing cost = cost_rare();
    send_all(patience_ns, nap ? nap : nap_plainly);
    cost_end(&cost);
  }
  errno = saved;
}

/* The end. */

/* 0: done, for better or worse. -EAGAIN: worth another try. */
static int try_goodbye(uint64_t now_ns) {
  if (!connection_alive(now_ns) && reach(now_ns) < 0)
    return state.launched_ns ? -EAGAIN : 0;
  int r = session_get()->by_messages ? send_records(ALL_AND_GOODBYE) : hand_over(true);
  if (r == 0 && !session_get()->by_messages)
    r = say_goodbye(&state.socket);
  if (r == -EAGAIN)
    return r;
  if (r < 0 && state.socket.fd < 0)
    return -EAGAIN;       /* it went just now: perhaps it is back */
  fd_drop(&state.socket); /* what was sent stays readable */
  return 0;
}

static int goodbye_step(void) {
  if (!take())
    return -EAGAIN;
  int r = state.ended || !session_get() ? 0 : try_goodbye(clock_system());
  give();
  return r;
}

/* Where records are still to be sent: does it go on? A peer that takes a socket's fill each time we come again does not. */
static bool stalls(uint64_t now_ns) {
  if (!state.most_ns || state.taken > state.most) {
    state.most = state.taken;
    state.most_ns = now_ns;
  }
  return link_reached() && !state.launched_ns && now_ns - state.most_ns >= GOODBYE_STALL_NS;
}

void link_goodbye(uint64_t patience_ns) {
  int saved = errno;
  uint64_t until = clock_system() + patience_ns, now;
  while (goodbye_step() == -EAGAIN && (now = clock_system()) < until && !stalls(now))
    nanosleep(&(struct timespec){.tv_nsec = GOODBYE_STEP_NS}, NULL);
  if (take()) {
    disconnect();
    state.ended = true;
    give();
  }
  atomic_store(&link_due_ns, UINT64_MAX);
  errno = saved;
}

void link_forget(void) {
  int saved = errno;
  fd_drop(&state.socket);
  memset(&state, 0, sizeof(state));
  state.socket.fd = -1;
  say_forget();
  pump_restart();
  atomic_store_explicit(&blocked, false, memory_order_relaxed);
  atomic_store(&stalled_at, UINT64_MAX);
  atomic_store(&link_due_ns, 0);
  give(); /* a thread of the parent may have held it */
  errno = saved;
}

int link_connected(void) {
  return state.socket.fd >= 0;
}

bool link_starting(void) {
  return state.launched_ns != 0;
}

bool link_reached(void) {
  return state.connected_ns != 0;
}
