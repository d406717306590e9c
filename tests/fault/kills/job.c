/* A traced job that keeps books of its own: kills.py compares them with the store after this or collectord was killed.
 *
 *   job LOG THREADS PAUSE_US        runs until LOG says stop, or until it is killed
 *
 * The agent's own files are linked in, init.c left out. LOG is a file that is mapped and shared, so it has all entries whatever
 * becomes of this process. Each thread has a part of its own:
 *
 *   log:   u64 stop | u64 threads that have begun | pad to 64 bytes | a part a thread
 *   part:  u64 spans | u64 marks | u64 open | pad to 64 bytes | { u64 id, u64 end_ns } a span
 *
 * A span is entered after it was closed, so one that is entered was given to the agent whole; at most one a thread was given
 * and not entered. `open` is the id of the outer span, while that is certainly open. The value of a mark is its number.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "agent/env.h"
#include "agent/init.h"
#include "agent/scope.h"
#include "agent/segment.h"
#include "agent/session.h"

#define MAX_SPANS (1u << 21)
#define MAX_THREADS 8
#define INNER 20

struct part {
  _Atomic uint64_t spans, marks, open;
  uint64_t pad[5];
  struct {
    uint64_t id, end_ns;
  } span[MAX_SPANS];
};

struct log {
  _Atomic uint64_t stop, begun;
  uint64_t pad[6];
  struct part part[MAX_THREADS];
};

static struct log *book;
static unsigned pause_us;
static uint32_t outer_name, inner_name, mark_name;

/* Stands in for init.c, whose constructor would look for an interpreter. */
bool agent_start(void) {
  return false;
}

static void enter(struct part *part, uint64_t id, uint64_t end_ns) {
  uint64_t n = atomic_load_explicit(&part->spans, memory_order_relaxed);
  part->span[n].id = id;
  part->span[n].end_ns = end_ns;
  atomic_store_explicit(&part->spans, n + 1, memory_order_release);
}

static void close_span(struct scope *scope, struct span *span, struct part *part) {
  uint64_t id = span->id, now = scope_clock(scope);
  scope_pop(scope, span, now, 0);
  enter(part, id, now);
}

static void mark(struct scope *scope, struct part *part) {
  uint64_t n = atomic_load(&part->marks);
  struct scope_value value = {.type = MARK_INT, .i = (int64_t)n};
  scope_mark(scope, mark_name, &value, false, NULL, 0);
  atomic_store(&part->marks, n + 1);
}

static void one_round(struct scope *scope, struct part *part, int64_t index) {
  struct span *outer = scope_push(scope, SPAN_USER, outer_name, index, scope_clock(scope));
  atomic_store(&part->open, outer->id);
  for (int i = 0; i < INNER; i++)
    close_span(scope, scope_push(scope, SPAN_USER, inner_name, i, scope_clock(scope)), part);
  mark(scope, part);
  atomic_store(&part->open, 0);
  close_span(scope, outer, part);
}

static void *work(void *arg) {
  struct part *part = arg;
  struct scope *scope = scope_get();
  if (!scope)
    abort();
  struct timespec pause = {.tv_nsec = (long)pause_us * 1000};
  atomic_fetch_add(&book->begun, 1);
  for (int64_t i = 0; !atomic_load(&book->stop) && part->spans + INNER + 1 < MAX_SPANS; i++) {
    one_round(scope, part, i);
    if (pause_us)
      nanosleep(&pause, NULL);
  }
  while (!atomic_load(&book->stop)) /* the books are full: it ends when it is told to all the same */
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return NULL;
}

int main(int argc, char **argv) {
  int fd = argc == 4 ? open(argv[1], O_RDWR) : -1;
  unsigned threads = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
  if (fd < 0 || threads < 1 || threads > MAX_THREADS || ftruncate(fd, sizeof *book) != 0) {
    fputs("usage: job LOG THREADS PAUSE_US\n", stderr);
    return 2;
  }
  pause_us = (unsigned)atoi(argv[3]);
  book = mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  env_read(&session_env);
  session_init();
  if (book == MAP_FAILED || !session_ensure())
    return 1;
  outer_name = segment_name("outer", 5);
  inner_name = segment_name("inner", 5);
  mark_name = segment_name("mark", 4);
  pthread_t thread[MAX_THREADS];
  for (unsigned i = 0; i < threads; i++)
    if (pthread_create(&thread[i], NULL, work, &book->part[i]) != 0)
      return 1;
  for (unsigned i = 0; i < threads; i++)
    pthread_join(thread[i], NULL);
  session_close();
  return 0;
}
