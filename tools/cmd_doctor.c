/* cirron-query doctor: what is wrong here, and what to do. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "buf.h"
#include "cmd.h"
#include "doctor.h"
#include "text.h"

static const char *const words[] = {[DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_FAIL] = "fail"};
static const struct out_column columns[] = {{"status", NULL, 0, 0}, {"area", NULL, 0, 0}, {"finding", NULL, 0, 0}};

void doctor_find(struct doctor *d, enum doctor_status status, const char *area, const char *format, ...) {
  char *text = NULL;
  va_list args;
  va_start(args, format);
  int len = vasprintf(&text, format, args);
  va_end(args);
  if (len < 0)
    abort(); /* out of memory: as everywhere in this program */
  d->failed = d->failed || status == DOCTOR_FAIL;
  if (d->out) {
    struct out_cell cells[] = {out_text(words[status]), out_text(area), out_text_len(text, (size_t)len)};
    (void)out_row(d->out, cells); /* out_end says it again */
  } else {
    struct buf line = {0};
    text_show(&line, text, (size_t)len, d->cli->style.utf8); /* paths and variables may hold anything */
    printf("%-4s  %-9s  %s\n", words[status], area, buf_text(&line));
    buf_fini(&line);
  }
  free(text);
}

int cmd_doctor(const struct cli *cli) {
  struct doctor d = {.cli = cli};
  if (cli->format != OUT_TABLE)
    d.out = out_begin(stdout, cli->format, &cli->style, columns, sizeof columns / sizeof *columns);
  doctor_kernel(&d);
  doctor_agent(&d);
  doctor_collector(&d);
  doctor_store(&d);
  int status = d.out ? cli_written(out_end(d.out)) : CLI_OK;
  return status ? status : d.failed ? CLI_CHECK : CLI_OK;
}
