/* Stacks that take turns on a thread, and what they have to know of each other (scope_own.h).
 *
 * A task that has nothing open needs no stack: the memory goes from task to task, and is given back to the system when the thread
 * ends. So what points into a stack can always be compared with what is there now, by number.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "loop.h"
#include "scope_own.h"
#include "segment.h"
#include "session.h"

/* Stacks whose task died on another thread: to be ended by their own. A slot is taken again when there are many. */
#define LEFT_MAX 64u
static _Atomic uint64_t left[LEFT_MAX];
static _Atomic unsigned turns_left;

static struct scope *turn_new(struct thread *t) {
  struct scope *s = t->spare;
  if (s) {
    t->spare = s->next;
    return s;
  }
  if (t->turn_count == SCOPE_MAX_TURNS)
    return NULL;
  int saved = errno;
  s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = saved;
  if (s == MAP_FAILED)
    return NULL;
  t->turn_count++;
  return s;
}

static struct scope *turn_begin(struct thread *t, struct scope_turn *turn) {
  struct scope *s = turn_new(t);
  if (!s) {
    __atomic_fetch_add(&segment_get()->dropped_depth, 1, __ATOMIC_RELAXED);
    return NULL;
  }
  scope_init(s, t, turn->serial, turn->parent);
  s->in_epoch = turn->in_epoch;
  s->next = t->turns;
  s->link = &t->turns;
  if (s->next)
    s->next->link = &s->next;
  t->turns = s;
  turn->thread = t->own.serial;
  turn->scope = s;
  return s;
}

/* It is empty. */
static void turn_give_back(struct thread *t, struct scope *s) {
  t->gone_ns = s->pushed_ns > t->gone_ns ? s->pushed_ns : t->gone_ns;
  *s->link = s->next;
  if (s->next)
    s->next->link = s->link;
  s->serial = 0;
  s->pushed_ns = 0;
  s->next = t->spare;
  t->spare = s;
  if (t->now == s)
    t->now = NULL;
}

static void turn_cut(struct thread *t, struct scope *s, bool owners) {
  loop_end_thread(s, clock_now(&t->clock), owners);
  if (loop_under_way(&s->loop))
    memset(&s->loop, 0, sizeof s->loop);
  turn_give_back(t, s);
}

static void end_left(struct thread *t) {
  t->left_seen = atomic_load(&turns_left);
  for (struct scope *next, *s = t->turns; s; s = next) {
    next = s->next;
    for (unsigned i = 0; i < LEFT_MAX; i++)
      if (atomic_load_explicit(&left[i], memory_order_relaxed) == s->serial) {
        turn_cut(t, s, false);
        break;
      }
  }
}

struct scope *scope_turn(struct scope *own, struct scope_turn *turn) {
  struct thread *t = own->thread;
  if (t->now && t->now->serial == turn->serial)
    return t->now;
  if (t->left_seen != atomic_load_explicit(&turns_left, memory_order_relaxed))
    end_left(t);
  if (t->now && t->now->depth == 0 && !loop_under_way(&t->now->loop))
    turn_give_back(t, t->now);
  bool begun = turn->thread == own->serial && turn->scope->serial == turn->serial;
  return t->now = begun ? turn->scope : turn_begin(t, turn);
}

void scope_turn_end(struct scope_turn *turn) {
  if (!turn->thread)
    return;
  struct thread *t = scope_thread_here();
  if (!t || t->own.serial != turn->thread) {
    unsigned n = atomic_fetch_add(&turns_left, 1);
    atomic_store(&left[n % LEFT_MAX], turn->serial);
    return;
  }
  if (turn->scope->serial == turn->serial)
    turn_cut(t, turn->scope, true);
}

uint64_t scope_lend(struct scope *scope, bool *in_epoch) {
  struct span *top = scope_top(scope);
  *in_epoch = scope->in_epoch || scope->open[SPAN_EPOCH];
  if (!top)
    return scope->root;
  top->has_children = true;
  top->flags |= SPAN_LENT;
  return top->id;
}

uint64_t scope_innermost(struct scope *scope) {
  const struct span *top = scope_top(scope);
  return top ? top->id : scope->root;
}

bool scope_in_epoch(const struct scope *scope) {
  return scope->in_epoch;
}

static bool holds_id(const struct scope *scope, uint64_t id) {
  for (unsigned i = scope->depth; i-- > 0;)
    if (scope->stack[i]->id == id)
      return true;
  return false;
}

static bool interferes(const struct scope *other, const struct scope *scope, uint64_t parent, uint64_t since_ns) {
  return other != scope && other->pushed_ns >= since_ns && (other->root == parent || holds_id(other, parent));
}

bool scope_alone(const struct scope *scope, uint64_t parent, uint64_t since_ns) {
  const struct thread *t = scope->thread;
  if (!t->turn_count)
    return true;
  bool alone = t->gone_ns < since_ns && !interferes(&t->own, scope, parent, since_ns);
  for (const struct scope *s = t->turns; s && alone; s = s->next)
    alone = !interferes(s, scope, parent, since_ns);
  return alone;
}

struct scope *scope_of_pass(const void *iterator, struct scope *except) {
  struct thread *t = scope_thread_here();
  if (!t || !t->turns)
    return NULL;
  if (&t->own != except && loop_passes_over(&t->own.loop, iterator))
    return &t->own;
  for (struct scope *s = t->turns; s; s = s->next)
    if (s != except && loop_passes_over(&s->loop, iterator))
      return s;
  return NULL;
}

void scope_turns_end(struct thread *t) {
  while (t->turns)
    turn_cut(t, t->turns, false);
}

static void free_all(struct scope *s) {
  for (struct scope *next; s; s = next) {
    next = s->next;
    munmap(s, sizeof *s);
  }
}

void scope_turns_free(struct thread *t) {
  free_all(t->turns); /* where another thread has ended the session */
  free_all(t->spare);
}
