#include "job.h"

#include <stdlib.h>
#include <string.h>

static bool same_host(const struct pick_session *a, const struct pick_session *b) {
  return strcmp(a->host ? a->host : "", b->host ? b->host : "") == 0;
}

/* Workers and helpers have the variables of the rank that started them, and are none themselves. */
static bool is_child(const struct pick_session *sessions, size_t count, const struct pick_session *s) {
  for (size_t i = 0; i < count; i++)
    if (sessions[i].pid == s->ppid && sessions[i].rank == s->rank && pick_same_job(&sessions[i], s) &&
        same_host(&sessions[i], s) && sessions[i].start_ns <= s->start_ns &&
        (!sessions[i].end_ns || sessions[i].end_ns >= s->start_ns))
      return true;
  return false;
}

/* Is `a` nearer to the anchor than `b`? */
static bool nearer(const struct pick_session *a, const struct pick_session *b, const struct pick_session *anchor) {
  bool launcher_a = same_host(a, anchor) && a->ppid == anchor->ppid,
       launcher_b = same_host(b, anchor) && b->ppid == anchor->ppid;
  if (launcher_a != launcher_b)
    return launcher_a;
  return llabs(a->start_ns - anchor->start_ns) < llabs(b->start_ns - anchor->start_ns);
}

static void add(struct job *job, const struct pick_session *s, const struct pick_session *anchor) {
  for (size_t i = 0; i < job->count; i++)
    if (job->ranks[i]->rank == s->rank) {
      if (s == anchor || (job->ranks[i] != anchor && nearer(s, job->ranks[i], anchor)))
        job->ranks[i] = s;
      return;
    }
  job->ranks = buf_realloc(job->ranks, (job->count + 1) * sizeof *job->ranks);
  job->ranks[job->count++] = s;
}

static int by_rank(const void *a, const void *b) {
  const struct pick_session *x = *(const struct pick_session *const *)a, *y = *(const struct pick_session *const *)b;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

void job_find(const struct pick_session *sessions, size_t count, const struct pick_session *anchor, struct job *out) {
  *out = (struct job){.world_size = anchor->world_size};
  if (anchor->world_size < 2) {
    out->world_size = 1;
    add(out, anchor, anchor);
    return;
  }
  if (out->world_size > JOB_MAX_RANKS)
    out->world_size = JOB_MAX_RANKS;
  for (size_t i = 0; i < count; i++)
    if (sessions[i].rank >= 0 && sessions[i].rank < JOB_MAX_RANKS && pick_same_job(&sessions[i], anchor) &&
        !is_child(sessions, count, &sessions[i]))
      add(out, &sessions[i], anchor);
  if (out->count)
    qsort(out->ranks, out->count, sizeof *out->ranks, by_rank);
}

void job_fini(struct job *job) {
  free(job->ranks);
  *job = (struct job){0};
}

const struct pick_session *job_rank(const struct job *job, int64_t rank) {
  for (size_t i = 0; i < job->count; i++)
    if (job->ranks[i]->rank == rank)
      return job->ranks[i];
  return NULL;
}
