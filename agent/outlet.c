/* See outlet.h. */
#include "outlet.h"

#include "clock.h"
#include "session.h"

void outlet_init(struct outlet *outlet, struct ring *home, uint32_t tid) {
  *outlet = (struct outlet){.ring = home, .home = home, .tid = tid};
}

static uint64_t unread(const struct ring *ring) {
  return ring->head - __atomic_load_n(&ring->shm->tail, __ATOMIC_ACQUIRE);
}

/* The records that follow go into `to`. False: not even this fits. */
static bool change(struct outlet *o, struct ring *to) {
  struct ring_after after = {.type = RING_AFTER, .ring_no = o->ring->ring_no, .position = o->ring->head};
  if (!ring_append(to, &after, NULL, 0, NULL, 0, true))
    return false;
  o->ring = to;
  o->stuck = false;
  return true;
}

/* Takes a spare ring, which another thread may have used before. */
static bool take_spare(struct outlet *o) {
  struct ring *spare = session_ring_spare();
  struct ring_thread thread = {.type = RING_THREAD, .tid = o->tid, .ts_ns = clock_system()};
  if (spare && ring_append(spare, &thread, NULL, 0, NULL, 0, false)) {
    o->spare = spare;
    return true;
  }
  if (spare)
    session_ring_give(spare); /* full of what nobody has read yet */
  o->refused = true;
  return false;
}

/* The ring is full. True: now there is another. */
static bool widen(struct outlet *o) {
  if (o->ring == o->spare)
    return unread(o->home) == 0 && change(o, o->home);
  if (o->spare)
    return ring_make_room(o->spare, 2, false) && change(o, o->spare);
  if (o->refused && o->full_tail == o->ring->tail_seen)
    return false;
  return take_spare(o) && change(o, o->spare);
}

/* Nothing more fits anywhere. Was the span open when that began? */
static bool open_since(struct outlet *o, uint64_t start_ns) {
  if (!o->full_ns || o->full_tail != o->ring->tail_seen) {
    o->full_tail = o->ring->tail_seen;
    o->full_ns = clock_system();
  }
  return start_ns < o->full_ns;
}

static void get_stuck(struct outlet *o) {
  o->stuck = true;
  o->stuck_tail = __atomic_load_n(&o->ring->shm->tail, __ATOMIC_RELAXED);
  o->stuck_home = __atomic_load_n(&o->home->shm->tail, __ATOMIC_RELAXED);
}

/* The short way where nothing fits and nothing was read since: counts the span as dropped. */
bool outlet_stays_stuck(const struct outlet *outlet, uint64_t start_ns) {
  const struct ring *ring = outlet->ring;
  if (start_ns < outlet->full_ns ||
      __atomic_load_n(&ring->renew, __ATOMIC_RELAXED) || /* a ring that is sent has to be hurried */
      __atomic_load_n(&ring->hurry, __ATOMIC_RELAXED) ||
      __atomic_load_n(&ring->shm->tail, __ATOMIC_RELAXED) != outlet->stuck_tail ||
      __atomic_load_n(&outlet->home->shm->tail, __ATOMIC_RELAXED) != outlet->stuck_home)
    return false;
  ring_count_emitted(ring->shm, RING_SPAN);
  ring_count_dropped(ring->shm, RING_SPAN);
  return true;
}

void *outlet_claim_hard(struct outlet *outlet, uint64_t start_ns) {
  outlet->stuck = false;
  bool structural = !widen(outlet) && open_since(outlet, start_ns);
  struct ring *ring = outlet->ring;
  if (ring_has_room(ring, 1, structural))
    return ring->cells + (ring->head & ring->mask) * RING_CELL;
  ring_count_dropped(ring->shm, RING_SPAN);
  if (!structural)
    get_stuck(outlet);
  return NULL;
}

bool outlet_put(struct outlet *outlet, const void *cell, const char *a, size_t a_len, const char *b, size_t b_len,
                bool structural, uint64_t start_ns) {
  uint8_t type = *(const uint8_t *)cell;
  ring_count_emitted(outlet->ring->shm, type);
  if (ring_append(outlet->ring, cell, a, a_len, b, b_len, structural))
    return true;
  bool wide = widen(outlet);
  structural = structural || (!wide && open_since(outlet, start_ns));
  if (ring_append(outlet->ring, cell, a, a_len, b, b_len, structural))
    return true;
  ring_count_dropped(outlet->ring->shm, type);
  return false;
}

void outlet_leave_spare(struct outlet *outlet) {
  struct ring *home = outlet->home, *spare = outlet->spare;
  if (outlet->ring == spare && unread(home) == 0 && unread(spare) < ((uint64_t)home->mask + 1) / 2)
    (void)change(outlet, home); /* an empty ring has room */
  if (outlet->ring == spare || unread(spare) != 0)
    return;
  ring_release_cells(spare);
  outlet->spare = NULL;
  session_ring_give(spare);
}

void outlet_end(struct outlet *outlet) {
  if (!outlet->spare)
    return;
  if (outlet->ring == outlet->spare && !change(outlet, outlet->home))
    outlet->ring = outlet->home; /* what comes next there may be read too early: sums suffer, nothing is lost */
  session_ring_give(outlet->spare);
  outlet->spare = NULL;
}
