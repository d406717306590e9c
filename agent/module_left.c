/* Finding spans again that objects of the module have opened.
 *
 * They may be left on another thread than the one that opened them: by a generator or iterator that wanders between threads, or an
 * object that dies elsewhere. A stack belongs to its thread, so the span is noted here and closed, at the time when it was left,
 * when its own thread comes by next (module_stack). One that another task of the same thread has opened is closed at once.
 *
 * What that thread opened since is not inside the span and becomes its parent's; what it had open in the span before is closed with
 * it, as always. A small table without locks; when it is full the span stays open until the one around it is closed,
 * and its text and the object it points at are never freed.
 */
#include <stdlib.h>

#include "loop.h"
#include "module_state.h"
#include "session.h"

enum { FREE, BUSY, READY };

static struct left {
  _Atomic int state;
  struct module_span span;
  uint64_t end_ns;
  uint32_t exception;
  char *json; /* what the span borrows; ours now */
  PyObject *buried;
} table[32];

_Atomic unsigned module_left_count;

void module_span_opened(struct module_span *out, struct scope *scope, struct span *span) {
  out->span = span;
  out->id = span->id;
  const struct session *session = session_get();
  out->session = session ? session->prefix : 0;
  out->here = scope_serial(scope);
  out->thread = scope_thread();
  out->shown = span->slot >= 0;
}

/* The stacks of a thread are there as long as it is, whatever is in them now. */
struct scope *module_span_stack(const struct module_span *s) {
  const struct session *session = session_get();
  if (!s->span || !s->thread || s->thread != scope_thread() || !session || session->prefix != s->session)
    return NULL;
  struct scope *scope = scope_of(s->span);
  return scope_holds(scope, s->span, s->id) ? scope : NULL;
}

/* False: its thread has ended, and the span with it. One that was never shown may be open for all that anybody can see. */
static bool open_elsewhere(const struct module_span *s) {
  const struct session *session = session_get();
  return session && session->prefix == s->session && (!s->shown || session_span_open(s->id));
}

static bool claim(struct left *l, int from) {
  return atomic_load_explicit(&l->state, memory_order_relaxed) == from &&
         atomic_compare_exchange_strong(&l->state, &from, BUSY);
}

static void entry_free(struct left *l) {
  char *json = l->json;
  PyObject *buried = l->buried;
  l->json = NULL;
  l->buried = NULL;
  atomic_fetch_sub(&module_left_count, 1);
  atomic_store(&l->state, FREE);
  free(json);
  if (buried)
    module_free_object(buried, true);
}

static struct left *entry_take(void) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (claim(&table[i], FREE))
      return &table[i];
  return NULL;
}

/* Those whose threads ended before they came by. */
static void entries_sweep(void) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    if (!claim(&table[i], READY))
      continue;
    if (open_elsewhere(&table[i].span))
      atomic_store(&table[i].state, READY);
    else
      entry_free(&table[i]);
  }
}

bool module_left(const struct module_span *span, uint64_t end_ns, uint32_t exception, char *json) {
  if (!open_elsewhere(span)) {
    free(json);
    return false;
  }
  struct left *l = entry_take();
  if (!l) {
    entries_sweep();
    l = entry_take();
  }
  if (!l)
    return true;
  l->json = json;
  l->span = *span;
  l->end_ns = end_ns;
  l->exception = exception;
  atomic_fetch_add(&module_left_count, 1);
  atomic_store(&l->state, READY);
  return true;
}

void module_left_bury(const struct module_span *span, PyObject *object) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    if (!claim(&table[i], READY))
      continue;
    bool found = table[i].span.id == span->id && table[i].span.session == span->session;
    if (found)
      table[i].buried = object;
    atomic_store(&table[i].state, READY);
    if (found)
      return;
  }
  if (!open_elsewhere(span))
    module_free_object(object, true);
}

void module_left_forget(void) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    atomic_store(&table[i].state, FREE);
  atomic_store(&module_left_count, 0);
}

/* The innermost span that was opened in `span`, or NULL. */
static const struct span *next_above(struct scope *scope, const struct span *span) {
  const struct span *above = scope_top(scope);
  while (above != span && scope_below(scope, above) != span)
    above = scope_below(scope, above);
  return above == span ? NULL : above;
}

static void close_late(struct left *l) {
  struct scope *scope = module_span_stack(&l->span);
  struct span *span = l->span.span;
  if (!scope)
    return;
  const struct span *above = next_above(scope, span);
  if (!above) {
    loop_pop(scope, span, l->end_ns, l->exception);
  } else if (above->start_ns < l->end_ns) {
    loop_pop(scope, span, scope_clock(scope), l->exception);
  } else {
    scope_move(scope, span->id, l->end_ns, span->parent);
    scope_close_below(scope, span, l->end_ns);
  }
}

void module_left_close(void) {
  uint64_t thread = scope_thread();
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    struct left *l = &table[i];
    if (!claim(l, READY))
      continue;
    if (l->span.thread != thread) {
      atomic_store(&l->state, READY);
      continue;
    }
    close_late(l);
    entry_free(l);
  }
}
