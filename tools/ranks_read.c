#include "ranks_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "collective.h"
#include "db.h"
#include "say.h"
#include "spans.h"

#define RECORDS_MAX 20000000 /* of all ranks together; of more, the latest */
#define TIME_MAX (INT64_C(1) << 62)

/* Texts that came up, with numbers in the order in which they did: groups and hosts of all stores. */
struct texts {
  char **list;
  size_t *lens, count;
};

static uint32_t text_number(struct texts *texts, const char *text, size_t len) {
  for (size_t i = 0; i < texts->count; i++)
    if (texts->lens[i] == len && memcmp(texts->list[i], text, len) == 0)
      return (uint32_t)i;
  texts->list = buf_realloc(texts->list, (texts->count + 1) * sizeof *texts->list);
  texts->lens = buf_realloc(texts->lens, (texts->count + 1) * sizeof *texts->lens);
  texts->list[texts->count] = buf_alloc(len + 1);
  memcpy(texts->list[texts->count], text, len);
  texts->lens[texts->count] = len;
  return (uint32_t)texts->count++;
}

static void texts_fini(struct texts *texts) {
  for (size_t i = 0; i < texts->count; i++)
    free(texts->list[i]);
  free(texts->list);
  free(texts->lens);
}

struct reading {
  const struct pick_session *session;
  struct ranks_input *in;
  uint64_t *step_spans; /* beside in->steps */
  size_t step_room, call_room;
  struct texts *groups;
  struct spans_names *names;
  int64_t from_ns; /* only what began since */
  /* What a name's text says, for the name that was looked up last. */
  uint32_t last_name;
  struct {
    uint32_t group;
    bool meets;
  } last;
};

static int64_t sane(int64_t value) {
  return value < 0 ? 0 : value < TIME_MAX ? value : TIME_MAX;
}

static void read_steps(struct reading *r) {
  sqlite3_stmt *stmt = db_query(r->session->store,
                                "SELECT span, idx, start_ns, end_ns, data_load_ns, forward_ns, backward_ns, optimizer_ns"
                                " FROM steps WHERE sid = ?1 AND start_ns >= ?2 ORDER BY start_ns, span",
                                r->session->sid, r->from_ns);
  struct ranks_input *in = r->in;
  while (db_step(stmt)) {
    if (in->step_count == r->step_room) {
      r->step_room = r->step_room ? 2 * r->step_room : 256;
      in->steps = buf_realloc(in->steps, r->step_room * sizeof *in->steps);
      r->step_spans = buf_realloc(r->step_spans, r->step_room * sizeof *r->step_spans);
    }
    struct ranks_step *s = &in->steps[in->step_count];
    bool indexed = sqlite3_column_type(stmt, 1) != SQLITE_NULL;
    *s = (struct ranks_step){.index = indexed ? sane(sqlite3_column_int64(stmt, 1)) : (int64_t)in->step_count,
                             .start_ns = sane(sqlite3_column_int64(stmt, 2)),
                             .end_ns = sane(sqlite3_column_int64(stmt, 3))};
    int64_t other = s->end_ns - s->start_ns;
    for (int p = RANKS_DATA; p <= RANKS_OPTIMIZER; p++) {
      s->phase_ns[p] = sane(sqlite3_column_int64(stmt, 4 + p));
      other = other > s->phase_ns[p] ? other - s->phase_ns[p] : 0; /* phases of several threads can overlap */
    }
    s->phase_ns[RANKS_OTHER] = other;
    r->step_spans[in->step_count++] = (uint64_t)sqlite3_column_int64(stmt, 0);
  }
}

static void look_up(struct reading *r, uint32_t name) {
  struct collective c;
  size_t len = 0;
  const char *text = spans_name(r->names, name, &len);
  collective_parse(text ? text : "", text ? len : 0, &c);
  r->last_name = name;
  r->last.group = text_number(r->groups, c.group, c.group_len);
  r->last.meets = collective_meets(c.op, c.op_len);
}

/* What lies in no phase is no part of the step's rest either. */
static void take_from_rest(struct reading *r, const struct ranks_call *call, uint64_t parent) {
  size_t low = 0, high = r->in->step_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (r->in->steps[middle].start_ns <= call->start_ns)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0 || r->step_spans[low - 1] != parent)
    return;
  int64_t *rest = &r->in->steps[low - 1].phase_ns[RANKS_OTHER], length = call->end_ns - call->start_ns;
  *rest = *rest > length ? *rest - length : 0;
}

static int add_call(const struct span_row *row, const struct spans_session *session, void *arg) {
  static const char async[] = "\"async\":true";
  struct reading *r = arg;
  struct ranks_input *in = r->in;
  (void)session;
  if (in->call_count == r->call_room) {
    r->call_room = r->call_room ? 2 * r->call_room : 1024;
    in->calls = buf_realloc(in->calls, r->call_room * sizeof *in->calls);
  }
  if (row->module != r->last_name || !in->call_count)
    look_up(r, row->module);
  bool whole = !(row->flags & SPAN_ERROR) && !(row->attrs_len && memmem(row->attrs, row->attrs_len, async, sizeof async - 1));
  struct ranks_call call = {.number = row->index >= 0 ? row->index : RANKS_NO_NUMBER,
                            .group = r->last.group,
                            .meets = r->last.meets && whole,
                            .start_ns = sane(row->start_ns),
                            .end_ns = sane(row->end_ns)};
  if (call.end_ns < call.start_ns)
    return 0;
  in->calls[in->call_count++] = call;
  take_from_rest(r, &call, row->parent);
  return 0;
}

static int is_ddp(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)session;
  return row->module == *(uint32_t *)arg;
}

static bool backward_meets(const struct pick_session *s) {
  static const char name[] = "DistributedDataParallel";
  uint32_t id;
  if (spans_name_find(s->store, name, strlen(name), &id) != 0)
    return false;
  struct spans_filter filter = {
      .sid = s->sid, .kinds = 1u << SPAN_FORWARD, .which = SPANS_CLOSED, .columns = BLOCK_KIND | BLOCK_MODULE};
  int rc = spans_each(s->store, &filter, is_ddp, &id);
  if (rc < 0)
    db_die(s->store, "spans", rc);
  return rc == 1;
}

/* Since when to read, so that no more than `room` records come. 0: all. */
static int64_t since(const struct pick_session *s, int64_t room) {
  int64_t count =
      db_value(s->store, 0, "SELECT sum(count) FROM rollups WHERE sid = ?1 AND kind = ?2", s->sid, SPAN_COLLECTIVE) +
      db_value(s->store, 0, "SELECT count(*) FROM steps WHERE sid = ?", s->sid);
  int64_t last = s->last_ns > s->start_ns ? s->last_ns : s->start_ns;
  if (count <= room)
    return 0;
  say("rank %lld has %lld steps and collectives; only the latest are compared", (long long)s->rank, (long long)count);
  return last - (int64_t)((double)(last - s->start_ns) * (double)room / (double)count);
}

static void read_rank(const struct pick_session *s, int64_t room, struct texts *groups, struct texts *hosts,
                      struct ranks_input *in) {
  struct reading r = {.session = s, .in = in, .groups = groups, .names = spans_names_new(s->store), .from_ns = since(s, room)};
  struct spans_filter filter = {
      .sid = s->sid, .kinds = 1u << SPAN_COLLECTIVE, .which = SPANS_CLOSED, .min_start_ns = r.from_ns};
  *in = (struct ranks_input){.rank = s->rank, .backward_meets = backward_meets(s)};
  in->host = text_number(hosts, s->host ? s->host : "", s->host ? strlen(s->host) : 0);
  read_steps(&r);
  int rc = r.names ? spans_each(s->store, &filter, add_call, &r) : -ENOMEM;
  if (rc < 0)
    db_die(s->store, "spans", rc);
  spans_names_free(r.names);
  free(r.step_spans);
}

struct ranks_input *ranks_read(const struct job *job, bool *several_hosts) {
  struct ranks_input *in = buf_alloc((job->count + 1) * sizeof *in);
  struct texts groups = {0}, hosts = {0};
  for (size_t i = 0; i < job->count; i++)
    read_rank(job->ranks[i], RECORDS_MAX / (int64_t)job->count, &groups, &hosts, &in[i]);
  *several_hosts = hosts.count > 1;
  texts_fini(&groups);
  texts_fini(&hosts);
  return in;
}

void ranks_read_fini(struct ranks_input *in, size_t count) {
  for (size_t i = 0; i < count; i++) {
    free(in[i].steps);
    free(in[i].calls);
  }
  free(in);
}
