/* cirron-query diff-tensors A B: what became of each tensor between two snapshots. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "db.h"
#include "pick.h"
#include "say.h"
#include "snaps_table.h"
#include "text.h"
#include "units.h"

/* What became of it. In the order in which they are shown: trouble first, then what changed the most, then what did not. */
enum what { BECAME_BAD, STAYED_BAD, BECAME_GOOD, RESHAPED, ONLY_B, ONLY_A, NOT_READ, CHANGED, UNCHANGED, WHATS };
static const char *const what_words[WHATS] = {"became non-finite", "non-finite in both", "became finite", "other shape",
                                              "only in B",         "only in A",          "not read",      "changed",
                                              "unchanged"};
static const char *const what_names[WHATS] = {
    "became_non_finite", "non_finite", "became_finite", "reshaped", "only_b", "only_a", "not_read", "changed", "unchanged"};

struct side {
  bool there, counted;   /* counted: magnitude is known */
  struct snaps_record r; /* texts are NULL */
  char *shape, *dtype;
  uint64_t histogram, magnitude[TENSOR_MAGNITUDES]; /* histogram: a hash of it */
};

struct pair {
  struct side a, b;
  enum what what;
  double change, distance; /* distance NaN: not known */
  size_t tensor;
};

struct diff {
  struct snaps_tensors tensors;
  struct pair *pairs; /* beside tensors.items until they are sorted */
  size_t cap, counts[WHATS];
  bool models;
};

/* --- which snapshots ----------------------------------------------------------------------------------------------------- */

struct end {
  struct pick_session *sessions;
  size_t sessions_count;
  const struct pick_session *session;
  struct snaps_pass pass;
};

static const struct snaps_pass *of_epoch(const struct snaps_passes *passes, int64_t epoch) {
  const struct snaps_pass *found = NULL;
  for (size_t i = 0; i < passes->count; i++)
    if (snaps_pass_in(&passes->items[i], epoch) &&
        (!found || found->reason != SNAPS_EPOCH || passes->items[i].reason == SNAPS_EPOCH))
      found = &passes->items[i];
  return found;
}

static const struct snaps_pass *of_step(const struct snaps_passes *passes, int64_t step) {
  for (size_t i = passes->count; i-- > 0;)
    if (passes->items[i].step == step && step != SNAPS_NO_INDEX)
      return &passes->items[i];
  return NULL;
}

static bool number_of(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return isdigit((unsigned char)*text) && !*end && !errno;
}

static int choose_pass(const char *text, struct end *out) {
  struct snaps_passes passes;
  const struct snaps_pass *found = NULL;
  int64_t number;
  int status = CLI_OK;
  bool step = strncmp(text, "step=", 5) == 0;
  snaps_passes_read(out->session->store, out->session->sid, &passes);
  if (strcmp(text, "first") == 0)
    found = passes.count ? &passes.items[0] : NULL;
  else if (strcmp(text, "last") == 0)
    found = passes.count ? &passes.items[passes.count - 1] : NULL;
  else if (number_of(step ? text + 5 : text, &number))
    found = step ? of_step(&passes, number) : of_epoch(&passes, number);
  else
    status = CLI_USAGE;
  if (status)
    say("'%s': it has to be an epoch's number, step=N, first or last, each also as SESSION:EPOCH", text);
  else if (!found && !passes.count)
    say("session %.8s has no snapshots", out->session->id);
  else if (!found)
    say("session %.8s has no snapshot of %s %s (see cirron-query sql 'SELECT * FROM snapshot_passes')", out->session->id,
        step ? "step" : "epoch", step ? text + 5 : text);
  if (found)
    out->pass = *found;
  snaps_passes_fini(&passes);
  return status ? status : found ? CLI_OK : CLI_ERROR;
}

/* "3", "last", "step=100", "0123ab:3" */
static int choose(const struct cli *cli, char *text, struct end *out) {
  struct cli one = *cli;
  char *colon = strchr(text, ':');
  if (colon) {
    *colon = '\0';
    for (char *s = text; *s; s++)
      *s = (char)tolower((unsigned char)*s);
    one.session = text;
    if (strcmp(text, "last") != 0 && (!*text || text[strspn(text, "0123456789abcdef")])) {
      say("'%s:': it has to be the first digits of a session's id (see cirron-query sessions), or last", text);
      return CLI_USAGE;
    }
  }
  int status = pick_sessions(&one, &out->sessions, &out->sessions_count);
  if (status)
    return status;
  out->session = snaps_session(out->sessions, out->sessions_count);
  for (size_t i = 0; out->session && i < out->sessions_count; i++) { /* of a job the lowest rank */
    const struct pick_session *s = &out->sessions[i];
    if (s->rank >= 0 && s->rank < out->session->rank && pick_same_job(s, out->session) && snaps_session(s, 1))
      out->session = s;
  }
  if (!out->session) {
    say("there are no snapshots%s", one.session || one.rank >= 0 ? " that fit" : " in this store");
    return CLI_ERROR;
  }
  return choose_pass(colon ? colon + 1 : text, out);
}

/* --- reading and comparing ----------------------------------------------------------------------------------------------- */

static char *copy(struct snaps_text text) {
  char *made = buf_alloc(text.len + 1);
  if (text.len)
    memcpy(made, text.text, text.len);
  made[text.len] = '\0';
  return made;
}

static uint64_t hash_of(struct snaps_text text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < text.len; i++)
    h = (h ^ (unsigned char)text.text[i]) * 0x100000001b3u;
  return h;
}

static void read_side(const struct cli *cli, const struct end *end, bool second, struct diff *diff) {
  sqlite3_stmt *stmt = snaps_records(end->session->store, end->session->sid, end->pass.number);
  while (db_step(stmt)) {
    struct snaps_record r;
    snaps_record_read(stmt, SNAPS_ALL, &r);
    if (cli->tensor_kind && (int)r.what != cli->tensor_kind)
      continue;
    size_t at = snaps_tensor_at(&diff->tensors, &r, true);
    if (at >= diff->cap) {
      size_t cap = diff->cap ? 2 * diff->cap : 256;
      diff->pairs = buf_realloc(diff->pairs, cap * sizeof *diff->pairs);
      memset(diff->pairs + diff->cap, 0, (cap - diff->cap) * sizeof *diff->pairs);
      diff->cap = cap;
    }
    struct side *side = second ? &diff->pairs[at].b : &diff->pairs[at].a;
    if (side->there) /* a name twice: the first counts */
      continue;
    side->there = true;
    side->shape = copy(r.shape);
    side->dtype = copy(r.dtype);
    side->histogram = hash_of(r.histogram);
    side->counted = snaps_counts(r.magnitude, side->magnitude, TENSOR_MAGNITUDES);
    side->r = r;
    snaps_record_drop_texts(&side->r);
    diff->models = diff->models || strcmp(diff->tensors.items[at].model, diff->tensors.items[0].model) != 0;
  }
}

static bool same(double x, double y) {
  return x == y || (isnan(x) && isnan(y));
}

static bool unchanged(const struct side *x, const struct side *y) {
  const struct snaps_record *a = &x->r, *b = &y->r;
  return a->count == b->count && a->nans == b->nans && a->infs == b->infs && a->neg_infs == b->neg_infs &&
         a->zeros == b->zeros && same(a->mean, b->mean) && same(a->std, b->std) && same(a->min, b->min) &&
         same(a->max, b->max) && same(a->norm, b->norm) && x->histogram == y->histogram &&
         memcmp(x->magnitude, y->magnitude, sizeof x->magnitude) == 0;
}

/* |x - y| as a part of `whole`, 0 where nothing is known. */
static double part(double x, double y, double whole) {
  double share = fabs(x - y) / whole;
  return isfinite(share) ? share : 0;
}

/* How much: the largest part by which norm, spread or mean (against the spread) moved, or the numbers in their magnitudes. */
static double change_of(const struct pair *p) {
  const struct snaps_record *a = &p->a.r, *b = &p->b.r;
  double spread = fmax(a->std, b->std), change = isnan(p->distance) ? 0 : p->distance;
  change = fmax(change, part(a->norm, b->norm, fmax(a->norm, b->norm)));
  change = fmax(change, part(a->std, b->std, spread));
  return fmax(change, part(a->mean, b->mean, spread > 0 ? spread : fmax(fabs(a->mean), fabs(b->mean))));
}

static void judge(struct pair *p) {
  const struct snaps_record *a = &p->a.r, *b = &p->b.r;
  p->distance = p->a.counted && p->b.counted ? snaps_distance(a, p->a.magnitude, b, p->b.magnitude) : NAN;
  p->change = 0;
  if (!p->a.there || !p->b.there) {
    p->what = p->a.there ? ONLY_A : ONLY_B;
    return;
  }
  if (strcmp(p->a.shape, p->b.shape) != 0 || strcmp(p->a.dtype, p->b.dtype) != 0) {
    p->what = RESHAPED;
    return;
  }
  if (!snaps_is_read(a) || !snaps_is_read(b)) {
    p->what = NOT_READ;
    return;
  }
  p->change = change_of(p);
  if (snaps_bad(a) || snaps_bad(b))
    p->what = !snaps_bad(a) ? BECAME_BAD : !snaps_bad(b) ? BECAME_GOOD : STAYED_BAD;
  else
    p->what = unchanged(&p->a, &p->b) ? UNCHANGED : CHANGED;
}

static int by_change(const void *a, const void *b) {
  const struct pair *x = a, *y = b;
  if (x->what != y->what)
    return x->what < y->what ? -1 : 1;
  if (x->what == CHANGED && x->change != y->change)
    return x->change > y->change ? -1 : 1;
  return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* --- what is shown ------------------------------------------------------------------------------------------------------- */

enum {
  TENSOR,
  MODEL,
  KIND,
  SHAPE,
  WHAT,
  WORDS,
  CHANGE,
  NORM_A,
  NORM_B,
  NORM_CHANGE,
  MEAN_A,
  MEAN_B,
  STD_A,
  STD_B,
  DISTANCE,
  BAD_A,
  BAD_B,
  COLUMNS
};

static struct out_cell number(const struct cli *cli, double value, char out[32]) {
  if (cli->format == OUT_TABLE)
    return snaps_number(value, out);
  return isnan(value) ? out_null() : out_real(value);
}

static struct out_cell percent(const struct cli *cli, double value, char out[32]) {
  if (cli->format != OUT_TABLE)
    return isfinite(value) ? out_real(value) : out_null();
  if (!isfinite(value))
    return out_null();
  snprintf(out, 32, fabs(value) < 0.0995 ? "%.2g %%" : "%.0f %%", value * 100);
  return out_text(out);
}

static double of(const struct side *side, double value) {
  return side->there && snaps_is_read(&side->r) ? value : NAN;
}

static struct out_cell bad(const struct side *side) {
  return side->there && snaps_is_read(&side->r) ? out_int(snaps_bad(&side->r)) : out_null();
}

static int show(const struct cli *cli, struct out *out, const struct diff *diff, const struct pair *p) {
  const struct snaps_tensor *name = &diff->tensors.items[p->tensor];
  const struct snaps_record *a = &p->a.r, *b = &p->b.r;
  const char *shape = p->b.there ? p->b.shape : p->a.shape;
  char text[9][32];
  double norm_a = of(&p->a, a->norm), norm_b = of(&p->b, b->norm);
  bool both = p->a.there && p->b.there && p->what != NOT_READ;
  const struct out_cell cells[COLUMNS] = {
      [TENSOR] = out_text_len(name->name, name->name_len),
      [MODEL] = out_text_len(name->model, name->model_len),
      [KIND] = out_text(name->what == SNAPS_GRADIENT ? "gradient" : "weight"),
      [SHAPE] = out_text(shape),
      [WHAT] = out_text(what_names[p->what]),
      [WORDS] = out_text(p->what == UNCHANGED && norm_a == 0 ? "unchanged, all 0" : what_words[p->what]),
      [CHANGE] = percent(cli, both ? p->change : NAN, text[0]),
      [NORM_A] = number(cli, norm_a, text[1]),
      [NORM_B] = number(cli, norm_b, text[2]),
      [NORM_CHANGE] = percent(cli, norm_a > 0 ? (norm_b - norm_a) / norm_a : NAN, text[3]),
      [MEAN_A] = number(cli, of(&p->a, a->mean), text[4]),
      [MEAN_B] = number(cli, of(&p->b, b->mean), text[5]),
      [STD_A] = number(cli, of(&p->a, a->std), text[6]),
      [STD_B] = number(cli, of(&p->b, b->std), text[7]),
      [DISTANCE] = percent(cli, both ? p->distance : NAN, text[8]),
      [BAD_A] = bad(&p->a),
      [BAD_B] = bad(&p->b),
  };
  return out_row(out, cells);
}

static int show_all(const struct cli *cli, const struct diff *diff, int64_t limit) {
  bool trouble = diff->counts[BECAME_BAD] || diff->counts[STAYED_BAD] || diff->counts[BECAME_GOOD];
  unsigned bads = trouble || cli->format != OUT_TABLE ? 0 : OUT_NO_TABLE;
  struct out_column columns[COLUMNS] = {
      [TENSOR] = {"tensor_name", "TENSOR", 0, OUT_CUT},
      [MODEL] = {"model", NULL, 0, diff->models ? OUT_CUT : OUT_NO_TABLE},
      [KIND] = {"kind", NULL, 0, 0},
      [SHAPE] = {"shape", NULL, 0, OUT_NO_DATA},
      [WHAT] = {"what", NULL, 0, OUT_NO_TABLE},
      [WORDS] = {"words", "WHAT", 0, OUT_NO_DATA},
      [CHANGE] = {"change", NULL, OUT_AS_COUNT, 0},
      [NORM_A] = {"norm_a", "NORM A", OUT_AS_COUNT, 0},
      [NORM_B] = {"norm_b", "NORM B", OUT_AS_COUNT, 0},
      [NORM_CHANGE] = {"norm_change", "NORM +/-", OUT_AS_COUNT, 0},
      [MEAN_A] = {"mean_a", "MEAN A", OUT_AS_COUNT, 0},
      [MEAN_B] = {"mean_b", "MEAN B", OUT_AS_COUNT, 0},
      [STD_A] = {"std_a", "STD A", OUT_AS_COUNT, 0},
      [STD_B] = {"std_b", "STD B", OUT_AS_COUNT, 0},
      [DISTANCE] = {"distance", NULL, OUT_AS_COUNT, 0},
      [BAD_A] = {"bad_a", "BAD A", OUT_AS_COUNT, bads},
      [BAD_B] = {"bad_b", "BAD B", OUT_AS_COUNT, bads},
  };
  static const struct snaps_fit fits[COLUMNS] = {
      [MODEL] = {12, 6},  [KIND] = {9, 7},    [SHAPE] = {13, 1},      [WORDS] = {18, 0},  [CHANGE] = {7, 0},
      [NORM_A] = {10, 5}, [NORM_B] = {10, 5}, [NORM_CHANGE] = {9, 0}, [MEAN_A] = {11, 3}, [MEAN_B] = {11, 3},
      [STD_A] = {10, 2},  [STD_B] = {10, 2},  [DISTANCE] = {9, 4},    [BAD_A] = {6, 0},   [BAD_B] = {6, 0}};
  size_t longest = 0;
  for (size_t i = 0; i < diff->tensors.count && (int64_t)i < limit; i++) {
    size_t len = diff->tensors.items[diff->pairs[i].tensor].name_len;
    longest = len > longest ? len : longest;
  }
  if (cli->format == OUT_TABLE)
    snaps_fit(cli, columns, fits, COLUMNS, longest);
  struct out *out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  int error = 0;
  for (size_t i = 0; i < diff->tensors.count && (int64_t)i < limit && !error; i++)
    error = show(cli, out, diff, &diff->pairs[i]);
  int ended = out_end(out);
  return error ? error : ended;
}

static void say_end(const char *name, const struct end *end) {
  struct buf line = {0};
  snaps_pass_say(&end->pass, &line);
  printf("%s: session %.8s%s, %s\n", name, end->session->id, end->pass.torn > 0 ? " (torn in part)" : "", line.data);
  buf_fini(&line);
}

static void say_counts(const struct diff *diff) {
  char text[UNITS_MAX];
  const char *comma = "";
  printf("\n%s: ", units_of((int64_t)diff->tensors.count, "tensor", "tensors", text));
  for (int i = 0; i < WHATS; i++)
    if (diff->counts[i]) {
      printf("%s%s %s", comma, units_count((int64_t)diff->counts[i], text), what_words[i]);
      comma = ", ";
    }
  puts(".");
}

static int compare(const struct cli *cli, const struct end *a, const struct end *b) {
  struct diff diff = {0};
  int64_t limit = cmd_limit(cli);
  read_side(cli, a, false, &diff);
  read_side(cli, b, true, &diff);
  for (size_t i = 0; i < diff.tensors.count; i++) {
    diff.pairs[i].tensor = i;
    judge(&diff.pairs[i]);
    diff.counts[diff.pairs[i].what]++;
  }
  if (diff.tensors.count)
    qsort(diff.pairs, diff.tensors.count, sizeof *diff.pairs, by_change);
  if (cli->format == OUT_TABLE && diff.tensors.count) {
    say_end("A", a);
    say_end("B", b);
    putchar('\n');
  }
  int error = show_all(cli, &diff, limit);
  if (cli->format == OUT_TABLE && diff.tensors.count && !error)
    say_counts(&diff);
  int status = cli_written(error);
  if (!error && (int64_t)diff.tensors.count > limit)
    cmd_more(cli, limit);
  cmd_none(cli, "snapshots", (int64_t)diff.tensors.count);
  for (size_t i = 0; i < diff.tensors.count; i++) {
    struct pair *p = &diff.pairs[i];
    free(p->a.shape), free(p->a.dtype), free(p->b.shape), free(p->b.dtype);
  }
  free(diff.pairs);
  snaps_tensors_fini(&diff.tensors);
  return status;
}

int cmd_diff_tensors(const struct cli *cli) {
  struct end a = {0}, b = {0};
  int status = choose(cli, cli->args[0], &a);
  if (!status)
    status = choose(cli, cli->args[1], &b);
  if (!status)
    status = compare(cli, &a, &b);
  pick_free(a.sessions, a.sessions_count);
  pick_free(b.sessions, b.sessions_count);
  return status;
}
