/* The sentences of a report. What they say is decided here, for text and JSON alike. */
#include <string.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "report.h"
#include "text.h"
#include "units.h"

#define OPEN_SHOWN 4    /* innermost spans that are named */
#define NAME_COLUMNS 60 /* of a name within a sentence */

/* Shares of step time, in percent, from which on waiting for data is called so. */
#define BOTTLENECK_PERCENT 30
#define BOTTLENECK_AS_LARGEST_PERCENT 20
#define SLOWS_PERCENT 10
#define NEARLY_PERCENT 3

/* A first step that takes more than this part of all step time is told apart. */
#define WARM_UP_PART 10

const char *report_phase_name(enum report_phase phase, bool machine) {
  static const char *const names[REPORT_PHASES][2] = {{"waiting for data", "data_load"},
                                                      {"forward", "forward"},
                                                      {"backward", "backward"},
                                                      {"optimizer", "optimizer"},
                                                      {"other", "other"}};
  return names[phase][machine];
}

bool report_complete(const struct report *report) {
  return report->lost == 0;
}

/* "epoch 2", "forward of ResNet", "waiting for data", "load images[3]" */
static void say_span(const struct report_open *o, bool utf8, struct buf *out) {
  static const char *const known[SPAN_KINDS] = {[SPAN_EPOCH] = "epoch",
                                                [SPAN_EVAL] = "evaluation",
                                                [SPAN_STEP] = "step",
                                                [SPAN_DATA_LOAD] = "waiting for data",
                                                [SPAN_FORWARD] = "forward",
                                                [SPAN_BACKWARD] = "backward",
                                                [SPAN_OPTIMIZER] = "optimizer step",
                                                [SPAN_BATCH] = "batch",
                                                [SPAN_FETCH] = "fetch"};
  if (o->kind == SPAN_COLLECTIVE && o->module) { /* "all_reduce 17" */
    text_show_cut(out, o->module, o->module_len, utf8, NAME_COLUMNS);
    if (o->index != REPORT_NO_INDEX)
      buf_printf(out, " %lld", (long long)o->index);
    return;
  }
  const char *name = o->kind >= 0 && o->kind < SPAN_KINDS ? known[o->kind] : NULL;
  if (name)
    buf_puts(out, name);
  else
    text_show_cut(out, o->name, o->name_len, utf8, NAME_COLUMNS);
  if (o->index != REPORT_NO_INDEX)
    buf_printf(out, name ? " %lld" : "[%lld]", (long long)o->index);
  if (o->module) {
    buf_puts(out, " of ");
    text_show_cut(out, o->module, o->module_len, utf8, NAME_COLUMNS);
  }
}

static void say_where(const struct report *report, const char *before, bool utf8, struct buf *out) {
  size_t from = report->open_count > OPEN_SHOWN ? report->open_count - OPEN_SHOWN : 0;
  for (size_t i = from; i < report->open_count; i++) {
    buf_puts(out, i == from ? before : ", ");
    say_span(&report->open[i], utf8, out);
  }
}

void report_say_ending(const struct report *report, bool utf8, struct buf *out) {
  const struct pick_session *s = report->session;
  char text[UNITS_MAX];
  if (strcmp(s->state, SESSION_RUNNING) == 0) {
    buf_puts(out, "not yet: it is still running");
    say_where(report, ", now in ", utf8, out);
    if (report->open_count) /* what tells a slow step from one that hangs */
      buf_printf(out, ", for %s", units_duration(report->now_ns - report->open[report->open_count - 1].start_ns, text));
    return;
  }
  if (s->exit_signal > 0)
    buf_printf(out, "killed by %s", units_signal((int)s->exit_signal, text));
  else if (strcmp(s->state, SESSION_LOST) == 0)
    buf_puts(out, "unknown: its end was not seen, the collector or the machine went away");
  else if (strcmp(s->state, SESSION_KILLED) == 0)
    buf_puts(out, "killed");
  else if (s->exit_code > 0)
    buf_printf(out, "by itself with exit status %lld", (long long)s->exit_code);
  else
    buf_puts(out, "finished");
  say_where(report, " while in ", utf8, out);
}

void report_say_complete(const struct report *report, bool utf8, struct buf *out) {
  const struct pick_session *s = report->session;
  char spans[UNITS_MAX], marks[UNITS_MAX], text[UNITS_MAX];
  bool running = strcmp(s->state, SESSION_RUNNING) == 0;
  if (report->lost)
    buf_printf(out, "incomplete: %s lost (", units_of(report->lost, "record", "records", text));
  for (size_t i = 0; i < report->losses_count; i++) {
    buf_printf(out, "%s", i ? ", " : "");
    for (const char *c = report->losses[i].reason; *c; c++) /* ring_full -> ring full */
      text_show(out, *c == '_' ? " " : c, 1, utf8);
    buf_printf(out, ": %s", units_count(report->losses[i].count, text));
  }
  if (report->lost)
    buf_puts(out, report->losses_count ? "); " : "no reason given); ");
  else
    buf_puts(out, running ? "complete so far: " : "complete: ");
  buf_printf(out, "%s and %s stored", units_of(s->spans, "span", "spans", spans), units_of(s->marks, "mark", "marks", marks));
  if (report->unfinished)
    buf_printf(out, running ? "; %s open now" : "; %s without an end",
               units_of(report->unfinished, running ? "span is" : "span", running ? "spans are" : "spans", text));
}

/* Steps that come of updates alone. */
static bool inferred(const struct report *report) {
  return report->steps && strcmp(report->unit, "step") == 0 && !report->kinds[SPAN_DATA_LOAD];
}

bool report_say_unseen(const struct report *report, struct buf *out) {
  char text[UNITS_MAX];
  int64_t updates = report->kinds[SPAN_OPTIMIZER], backwards = report->kinds[SPAN_BACKWARD];
  if (inferred(report))
    buf_puts(out,
             "where data comes from: no DataLoader and no framework's loop was met. A step is what leads to an update, without "
             "the time for its data (ci.batches tells that)");
  else if (!report->steps && updates)
    buf_printf(out, "steps: %s in no pass over a DataLoader and no framework's loop",
               units_of(updates, "update was", "updates were", text));
  else if (!report->steps && backwards)
    buf_printf(out, "steps: gradients were computed %s, but no optimizer of torch.optim had a turn",
               units_of(backwards, "time", "times", text));
  return out->len > 0;
}

bool report_say_waiting(const struct report *report, struct buf *verdict, struct buf *hint) {
  char text[UNITS_MAX];
  int64_t waited = report->phase_ns[REPORT_DATA], whole = report->step_ns;
  bool largest = true;
  size_t epochs = 0;
  if (!report->first.found || whole <= 0 || inferred(report))
    return false;
  for (size_t i = 0; i < report->epochs_count; i++)
    epochs += report->epochs[i].steps > 0;
  double percent = 100.0 * (double)waited / (double)whole;
  bool warmed = report->steps > 2 && report->first.duration_ns > whole / WARM_UP_PART;
  int64_t warm_waited = waited - report->first.phase_ns[REPORT_DATA], warm_whole = whole - report->first.duration_ns;
  if (warmed && warm_whole > 0) {
    percent = 100.0 * (double)warm_waited / (double)warm_whole;
    for (int i = 1; i < REPORT_PHASES; i++)
      largest = largest && report->phase_ns[i] - report->first.phase_ns[i] <= warm_waited;
  }
  for (int i = 1; !warmed && i < REPORT_PHASES; i++)
    largest = largest && report->phase_ns[i] <= waited;
  bool bottleneck = percent >= BOTTLENECK_PERCENT || (largest && percent >= BOTTLENECK_AS_LARGEST_PERCENT);
  buf_printf(verdict, "%s of step time", units_share(waited, whole, text));
  if (warmed)
    buf_printf(verdict, ", %s without the first step", units_share(warm_waited, warm_whole, text));
  buf_printf(verdict, ": %s",
             bottleneck                  ? "the loader is the bottleneck"
             : percent >= SLOWS_PERCENT  ? "the loader slows training down"
             : percent >= NEARLY_PERCENT ? "the loader nearly keeps up"
                                         : "the loader keeps up");
  int64_t first = report->first_data_ns ? report->first_data_ns : report->first.phase_ns[REPORT_DATA];
  if (percent < SLOWS_PERCENT)
    return true;
  if (report->slowest.phase_ns[REPORT_DATA] >= waited / 2 && report->slowest.index != REPORT_NO_INDEX)
    buf_printf(hint, "%s of it is in step %lld alone: what did that batch need?",
               units_share(report->slowest.phase_ns[REPORT_DATA], waited, text), (long long)report->slowest.index);
  else if (first >= waited - waited / 4 && epochs > 1)
    buf_printf(
        hint,
        "%s of it is in the first step of each epoch, when a loader starts its workers: persistent_workers=True keeps them",
        units_share(first, waited, text));
  else if (first >= waited - waited / 4)
    buf_printf(hint, "%s of it is in the first step, when a loader starts: a longer run will not feel it",
               units_share(first, waited, text));
  else
    buf_puts(hint, "more workers (num_workers), prefetching or cheaper transforms are the usual remedies");
  return true;
}

enum report_phase report_culprit(const struct report *report, const struct report_step *step, int64_t *excess_ns) {
  enum report_phase worst = REPORT_PHASES;
  *excess_ns = 0;
  for (int i = 0; i < REPORT_PHASES && step->found && report->median.found; i++) {
    int64_t excess = step->phase_ns[i] - report->median.phase_ns[i];
    if (excess > *excess_ns) {
      *excess_ns = excess;
      worst = (enum report_phase)i;
    }
  }
  return worst;
}
