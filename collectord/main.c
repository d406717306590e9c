/* collectord: keeps what traced training jobs report in a store.
 *
 * Start: settings, folders, privileges given up, store (its lock says whether another collector has it), socket, sessions that an earlier collector left, loop.
 * End (SIGTERM, SIGINT, or idle): no new connections, last records, commit, status 0. Sessions whose process lives stay running in the
 * store: it may find the next collector. One thread runs it all; the store checkpoints on one of its own, and tensors are read on two.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "conn.h"
#include "drain.h"
#include "listener.h"
#include "log.h"
#include "privs.h"
#include "reader.h"
#include "retention.h"
#include "roster.h"
#include "store.h"
#include "watchdog.h"

#define LOOP_TRIES 500
#define LOOP_PAUSE_US 10000

enum { EXIT_OK, EXIT_CANNOT, EXIT_USAGE };

struct collector {
  struct config config;
  struct privs privs;
  struct event_base *base;
  struct store *store;
  struct listener listener;
  struct conns conns;
  struct roster roster;
  struct drain drain;
  struct watchdog watchdog;
  struct retention retention;
  struct reader *reader;
  bool reader_hangs;
  struct event *term, *interrupt;
  bool leaving;
};

static void leave(void *arg) {
  struct collector *c = arg;
  c->leaving = true;
  (void)event_base_loopbreak(c->base); /* fails for no base only */
}

static void on_signal(evutil_socket_t number, short what, void *arg) {
  (void)number;
  (void)what;
  leave(arg);
}

/* Every mapped ring and connection takes a descriptor for a moment at least. */
static void raise_limits(void) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files); /* then it is fewer */
  }
}

/* What takes root, where we are root, and then no more of it. */
static int settle(struct collector *c) {
  char why[512] = "";
  int err = privs_find(&c->config, &c->privs, why, sizeof why);
  if (!err) {
    privs_make_folder(&c->privs, c->config.db, false);
    if (!getenv("LISTEN_FDS")) /* else the socket is there */
      privs_make_folder(&c->privs, c->config.socket, c->privs.socket_mode != 0600);
    err = privs_drop(&c->privs, why, sizeof why);
  }
  if (err)
    log_line("main", 0, "%s", why);
  return err;
}

/* Opens what needs to be there before anyone may be told that we run. Returns an exit status; EXIT_OK with store NULL: another
 * private collector has it, and we are not needed. */
static int open_all(struct collector *c) {
  char why[512] = "";
  privs_share_store(&c->privs, c->config.db);
  bool private = c->config.idle_exit_s != 0;
  int err = store_open(c->config.db, &c->store, why, sizeof why);
  if (err == -EWOULDBLOCK && private)
    return EXIT_OK;
  if (err) {
    log_line("store", 0, "%s", why);
    return EXIT_CANNOT;
  }
  err = listener_open(c->config.socket, c->privs.socket_mode, &c->listener, why, sizeof why);
  if (err) {
    store_close(c->store);
    c->store = NULL;
    if (err == -EADDRINUSE && private)
      return EXIT_OK;
    log_line("listener", 0, "%s", why);
    return EXIT_CANNOT;
  }
  return EXIT_OK;
}

static struct event_base *make_base(void) {
  struct event_config *config = event_config_new();
  if (!config)
    return NULL;
  /* Without it a timer of 2 ms fires every 4. */
  (void)event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
  struct event_base *base = event_base_new_with_config(config);
  event_config_free(config);
  return base;
}

static int set_up(struct collector *c) {
  c->base = make_base();
  if (!c->base)
    return -ENOMEM;
  if (reader_new(&c->reader) != 0)
    return -ENOMEM;
  c->roster = (struct roster){
      .base = c->base,
      .store = c->store,
      .reader = c->reader,
      .max_sessions = c->config.max_sessions,
      .max_user_sessions = c->config.max_user_sessions,
      .max_rings = c->config.max_rings,
      .quota = {.rate = c->config.max_rate, .bytes = c->config.max_session_bytes},
      .notify = drain_wake,
      .notify_arg = &c->drain,
      .flush = conn_flush,
      .acknowledge = conn_acknowledge,
  };
  c->drain = (struct drain){
      .base = c->base,
      .roster = &c->roster,
      .store = c->store,
      .idle_exit_ns = c->config.idle_exit_s * 1000000000u,
      .idle = leave,
      .idle_arg = c,
      .forget = conn_forget,
  };
  c->conns = (struct conns){
      .base = c->base,
      .roster = &c->roster,
      .any_user = c->config.any_user,
      .group = c->privs.group,
      .max = 2 * c->config.max_sessions + 64,
      .max_user = 2 * c->config.max_user_sessions + 32,
  };
  c->term = evsignal_new(c->base, SIGTERM, on_signal, c);
  c->interrupt = evsignal_new(c->base, SIGINT, on_signal, c);
  if (!c->term || !c->interrupt || event_add(c->term, NULL) != 0 || event_add(c->interrupt, NULL) != 0)
    return -ENOMEM;
  c->retention = (struct retention){
      .base = c->base,
      .store = c->store,
      .keep_days = c->config.keep_days,
      .max_bytes = c->config.max_db_bytes,
  };
  int err = drain_init(&c->drain);
  if (!err)
    err = retention_init(&c->retention);
  if (!err)
    err = roster_take_stock(&c->roster);
  if (!err)
    err = watchdog_start(&c->watchdog, c->base);
  return err ? err : listener_start(&c->listener, &c->conns);
}

static int wind_up(struct collector *c) {
  listener_notify("STOPPING=1");
  for (int i = 0; i < 2; i++) /* who has come already, and what has been said already */
    (void)event_base_loop(c->base, EVLOOP_NONBLOCK);
  listener_close(&c->listener);
  roster_check_ended(&c->roster);
  c->reader_hangs = !reader_stop(c->reader);
  int err = drain_all(&c->drain);
  if (err)
    log_line("store", err, "the last records could not be kept");
  return err ? EXIT_CANNOT : EXIT_OK;
}

static void tear_down(struct collector *c) {
  listener_close(&c->listener);
  conns_fini(&c->conns);
  drain_fini(&c->drain);
  watchdog_stop(&c->watchdog);
  retention_fini(&c->retention);
  c->reader_hangs = !reader_stop(c->reader) || c->reader_hangs;
  if (c->base)
    roster_fini(&c->roster);
  if (!c->reader_hangs)
    reader_free(c->reader);
  if (c->term)
    event_free(c->term);
  if (c->interrupt)
    event_free(c->interrupt);
  if (c->base)
    event_base_free(c->base);
  store_close(c->store);
}

/* Into the background: the child goes on; the parent returns with its status once that is known. Before any thread or database. */
static int background(int *ready) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return -errno;
  pid_t pid = fork();
  if (pid < 0)
    return -errno;
  if (pid == 0) {
    close(ends[0]);
    *ready = ends[1];
    return setsid() < 0 ? -errno : 0;
  }
  close(ends[1]);
  unsigned char status;
  ssize_t n;
  do
    n = read(ends[0], &status, 1);
  while (n < 0 && errno == EINTR);
  _exit(n == 1 ? status : EXIT_CANNOT);
}

static void tell_parent(int ready, int status) {
  if (ready < 0)
    return;
  unsigned char byte = (unsigned char)status;
  if (write(ready, &byte, 1) != 1)
    log_line("main", -errno, "the starting process is gone");
  close(ready);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0)
    return;
  (void)dup2(null, 0);
  (void)dup2(null, 1);
  if (isatty(2)) /* a file or pipe was put there to be written to */
    (void)dup2(null, 2);
  close(null);
}

/* Until leave(). The loop ends by itself only where the kernel refuses to wait, for want of memory: that passes, or we end in good
 * order, for a signal would not be heard either. */
static void loop(struct collector *c) {
  for (int failed = 0; !c->leaving && event_base_dispatch(c->base) < 0 && failed < LOOP_TRIES; failed++) {
    log_limited(LOG_LOOP, "main", -errno, "cannot wait for events");
    (void)usleep(LOOP_PAUSE_US);
  }
}

/* libevent's own words, which tell of calls that failed; whoever made them says what follows from it. */
static void on_event_log(int severity, const char *text) {
  if (severity >= EVENT_LOG_WARN)
    log_limited(LOG_LOOP, "libevent", 0, "%s", text);
}

/* From the moment the socket accepts, a signal to end is one to end in good order: what comes before the loop listens to it waits. */
static void hold_signals(int how) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  (void)sigprocmask(how, &ends, NULL); /* fails for a wrong `how` only */
}

static int run(struct collector *c, int ready) {
  hold_signals(SIG_BLOCK);
  int status = open_all(c);
  if (status != EXIT_OK || !c->store) {
    tell_parent(ready, status);
    return status;
  }
  int err = set_up(c);
  if (err) {
    log_line("main", err, "cannot start");
    status = EXIT_CANNOT;
  }
  hold_signals(SIG_UNBLOCK);
  tell_parent(ready, status);
  if (status == EXIT_OK) {
    listener_notify("READY=1");
    loop(c);
    status = wind_up(c);
  }
  tear_down(c);
  return status;
}

int main(int argc, char **argv) {
  static struct collector c = {.listener.fd = -1};
  char message[4096];
  switch (config_parse(argc, argv, &c.config, message, sizeof message)) {
  case CONFIG_DONE:
    fputs(message, stdout);
    return fflush(stdout) == 0 ? EXIT_OK : EXIT_CANNOT;
  case CONFIG_INVALID:
    fprintf(stderr, "collectord: %s\n", message);
    return EXIT_USAGE;
  case CONFIG_RUN:
    break;
  }
  event_set_log_callback(on_event_log);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  raise_limits();
  if (settle(&c) != 0)
    return EXIT_CANNOT;
  int ready = -1;
  if (!c.config.foreground) {
    int err = background(&ready);
    if (err) {
      log_line("main", err, "cannot go into the background (--foreground does not)");
      return EXIT_CANNOT;
    }
  }
  return run(&c, ready);
}
