// links: tools/out.c tools/out_table.c tools/out_json.c tools/out_csv.c tools/text.c tools/units.c tools/buf.c
/* The four formats for the same rows, and outputs that fail. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/out.h"

static const struct out_column columns[] = {{"id", NULL, OUT_AS_ID, 0},
                                            {"at", "AT", OUT_AS_DURATION, OUT_NO_DATA},
                                            {"dur_ns", "DURATION", OUT_AS_DURATION, 0},
                                            {"value", NULL, 0, 0},
                                            {"error", NULL, 0, 0},
                                            {"text", NULL, 0, OUT_CUT},
                                            {"attrs", NULL, 0, OUT_NO_TABLE}};

static const struct out_style plain = {.utf8 = true};

static char *print(enum out_format format, const struct out_style *style, int rows) {
  char *data = NULL;
  size_t len = 0;
  FILE *file = open_memstream(&data, &len);
  struct out *out = out_begin(file, format, style, columns, 7);
  const struct out_cell first[] = {
      out_text("0123456789abcdef"), out_int(1000), out_int(12300000), out_real(0.1), out_bool(true), out_text_len("a\"b\n,", 5),
      out_raw_json("{\"k\":1}", 7)};
  const struct out_cell second[] = {out_text("ff"), out_int(0), out_int_or_null(-1, -1), out_real(NAN), out_bool(false),
                                    out_text(""),   out_null()};
  for (int i = 0; i < rows; i++)
    assert_int_equal(out_row(out, i % 2 ? second : first), 0);
  assert_int_equal(out_end(out), 0);
  fclose(file);
  return data;
}

static void prints(enum out_format format, int rows, const char *want) {
  char *got = print(format, &plain, rows);
  assert_string_equal(got, want);
  free(got);
}

static void formats(void **state) {
  (void)state;
  prints(OUT_TABLE, 2,
         "ID            AT DURATION VALUE ERROR TEXT\n"
         "01234567 1.00 µs  12.3 ms 0.1   yes   a\"b\\n,\n"
         "ff          0 ns        - NaN   no    \n");
}

static void json(void **state) {
  (void)state;
  prints(OUT_JSONL, 2,
         "{\"id\":\"0123456789abcdef\",\"dur_ns\":12300000,\"value\":0.1,\"error\":true,\"text\":\"a\\\"b\\n,\",\"attrs\":{"
         "\"k\":1}}\n"
         "{\"id\":\"ff\",\"dur_ns\":null,\"value\":\"NaN\",\"error\":false,\"text\":\"\",\"attrs\":null}\n");
  prints(OUT_JSON, 0, "[]\n");
  char *two = print(OUT_JSON, &plain, 2);
  assert_int_equal(strncmp(two, "[\n {\"id\"", 8), 0);
  assert_non_null(strstr(two, "},\n {"));
  assert_string_equal(two + strlen(two) - 4, "}\n]\n");
  free(two);
}

static void csv(void **state) {
  (void)state;
  prints(OUT_CSV, 2,
         "id,dur_ns,value,error,text,attrs\n"
         "0123456789abcdef,12300000,0.1,true,\"a\"\"b\\n,\",\"{\"\"k\"\":1}\"\n"
         "ff,,NaN,false,\"\",\n");
  prints(OUT_CSV, 0, "id,dur_ns,value,error,text,attrs\n");
}

static void tables(void **state) {
  (void)state;
  prints(OUT_TABLE, 0, "");
  char *many = print(OUT_TABLE, &plain, 2 * OUT_TABLE_PART + 1); /* in three parts, each with its heading */
  size_t lines = 0;
  for (const char *c = many; *c; c++)
    lines += *c == '\n';
  assert_int_equal(lines, 2 * OUT_TABLE_PART + 1 + 3);
  free(many);
  struct out_style narrow = {.utf8 = true, .width = 60};
  char *cut = print(OUT_TABLE, &narrow, 1);
  assert_true(strcspn(cut, "\n") <= 61);
  free(cut);
}

static void no_room(void **state) {
  (void)state;
  static const enum out_format all[] = {OUT_TABLE, OUT_JSON, OUT_JSONL, OUT_CSV};
  for (size_t i = 0; i < 4; i++) {
    FILE *full = fopen("/dev/full", "w");
    if (!full)
      skip();
    setvbuf(full, NULL, _IONBF, 0);
    struct out *out = out_begin(full, all[i], &plain, columns, 1);
    for (int k = 0; k < 3; k++)
      (void)out_row(out, (const struct out_cell[]){out_text("x")});
    assert_int_equal(out_end(out), -ENOSPC);
    fclose(full);
  }
}

static void names(void **state) {
  enum out_format format = OUT_CSV;
  (void)state;
  assert_true(out_format_parse("jsonl", &format));
  assert_int_equal(format, OUT_JSONL);
  assert_false(out_format_parse("JSON", &format));
  assert_false(out_format_parse("", &format));
  assert_int_equal(format, OUT_JSONL);
  assert_int_equal(out_end(NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(formats), cmocka_unit_test(json),    cmocka_unit_test(csv),
                                     cmocka_unit_test(tables),  cmocka_unit_test(no_room), cmocka_unit_test(names)};
  setlocale(LC_CTYPE, "C.UTF-8");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
