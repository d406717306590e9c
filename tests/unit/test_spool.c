// links: agent/keep.c agent/keep_moves.c agent/spool.c agent/folder.c agent/spool_json.c agent/spool_out.c agent/spool_snapshot.c proto/tensor_read.c proto/tensor_scalar.c proto/tensor_stats.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
/* The spool's files: valid JSON whatever is in them, a bound on all of them together, and what happens where nothing can be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/keep.h"
#include "agent/keep_moves.h"
#include "agent/open.h"
#include "agent/spool.h"
#include "agent/spool_snapshot.h"

void keep_recall(void) {
}

/* Counts the looks at the folder and what is seen there: each entry of a batch costs a system call for its size. */
static unsigned looks, entries_seen;

DIR *opendir(const char *path) {
  static DIR *(*real)(const char *);
  if (!real)
    *(void **)&real = dlsym(RTLD_NEXT, "opendir");
  looks++;
  return real(path);
}

struct dirent *readdir(DIR *dir) {
  static struct dirent *(*real)(DIR *);
  if (!real)
    *(void **)&real = dlsym(RTLD_NEXT, "readdir64"); /* the same where files have 64 bits anyway */
  struct dirent *entry = real(dir);
  entries_seen += entry != NULL;
  return entry;
}

static char folder[64];
static struct spool spool;
static struct spool_batch batch;
static _Alignas(8) uint8_t spans[1 << 20], points[1 << 20], summaries[1 << 19];
static const char *name_text = "na\"me\\\n\x01\x7f \xc3\xa9 \xf0\x9f\x9a\x82 \xff\xed\xa0\x80 end";

static const char *name_of(uint32_t id, size_t *len) {
  const char *text = id == 0 ? NULL : id == 1 ? name_text : id == 2 ? "Net" : "ValueError";
  *len = text ? strlen(text) : 0;
  return text;
}

static int begin(void **state) {
  (void)state;
  strcpy(folder, "/tmp/test_spool.XXXXXX");
  assert_non_null(mkdtemp(folder));
  keep_forget();
  assert_true(keep_start());
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/a/b", folder);
  assert_int_equal(spool_init(&spool, path, 1000000000), 0);
  batch = (struct spool_batch){
      .prefix = 0xabcdef0123456789, .pid = 42, .rank = 3, .name = name_of, .wall_minus_monotonic_ns = 1000};
  return 0;
}

static int end(void **state) {
  (void)state;
  char command[200];
  snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", folder, folder);
  return system(command);
}

static void put_mark(uint64_t id, uint64_t span, uint8_t type, double f, int64_t i, const char *text, const char *attrs) {
  struct ring_mark m = {.type = RING_MARK, .value_type = type, .name = 1, .id = id, .span = span, .ts_ns = 5};
  m.flags = id % 2 ? MARK_SUMMARY : 0;
  if (type == MARK_FLOAT)
    m.value.f = f;
  else
    m.value.i = i;
  keep_put(&m, 9, text, strlen(text), attrs, strlen(attrs));
}

static void put_span(uint64_t id, uint64_t parent, uint8_t flags, const char *attrs) {
  struct ring_span s = {
      .type = RING_SPAN, .flags = flags, .name = 1, .id = id, .parent = parent, .start_ns = 10 * id, .end_ns = 20 * id};
  s.index = id % 2 ? (int64_t)id : SPAN_NO_INDEX;
  s.cpu_ns = id % 2 ? 7 : SPAN_NO_TIME;
  s.module = flags & SPAN_MODE_TRAIN ? 2 : 0;
  s.exception = flags & SPAN_ERROR ? 3 : 0;
  keep_put(&s, 9, attrs, strlen(attrs), NULL, 0);
}

static void fill(uint64_t number) {
  uint64_t pos[3] = {0};
  batch.created_ns = number;
  snprintf(batch.id, sizeof batch.id, "%032llx", (unsigned long long)number);
  batch.spans = spans;
  batch.spans_bytes = keep_read(KEEP_SPANS, &pos[0], spans, sizeof spans, NULL);
  batch.marks[0] = points;
  batch.marks_bytes[0] = keep_read(KEEP_POINTS, &pos[1], points, sizeof points, NULL);
  batch.marks[1] = summaries;
  batch.marks_bytes[1] = keep_read(KEEP_SUMMARIES, &pos[2], summaries, sizeof summaries, NULL);
}

static void path_of(uint64_t number, char out[PATH_MAX]) {
  snprintf(out, PATH_MAX, "%s/a/b/%020llu-%032llx.json", folder, (unsigned long long)number, (unsigned long long)number);
}

static json_t *load(uint64_t number) {
  char path[PATH_MAX];
  json_error_t error;
  path_of(number, path);
  json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!file)
    fail_msg("%s: %s at %d", path, error.text, error.position);
  return file;
}

static bool there(uint64_t number) {
  char path[PATH_MAX];
  path_of(number, path);
  return access(path, F_OK) == 0;
}

static const char *text_at(json_t *list, size_t i, const char *key) {
  return json_string_value(json_object_get(json_array_get(list, i), key));
}

/* One with what every one has, one of nothing finite, one that was not read. */
static struct spool_snapshot *make_snapshot(void) {
  static struct {
    _Alignas(8) char bytes[SNAPSHOT_PAGE + 3 * (sizeof(struct snapshot_entry) + sizeof(struct snapshot_result)) + 256];
  } memory;
  struct snapshot_area *a = (struct snapshot_area *)memory.bytes;
  memset(&memory, 0, sizeof memory);
  *a = (struct snapshot_area){.entries = 3,
                              .text_bytes = 256,
                              .number = 1,
                              .span = 3,
                              .first_record = 40,
                              .ts_ns = 50,
                              .count = 3,
                              .gradients = 1,
                              .done = 2,
                              .torn_from = SNAPSHOT_WHOLE,
                              .blobs = 1,
                              .reason = SNAPSHOT_EPOCH};
  struct snapshot_entry *e = (struct snapshot_entry *)(memory.bytes + SNAPSHOT_ENTRIES_OFFSET);
  struct snapshot_result *r = (struct snapshot_result *)(memory.bytes + SNAPSHOT_RESULTS_OFFSET(3));
  char *text = memory.bytes + SNAPSHOT_TEXT_OFFSET(3);
  memcpy(text + 8, "\4\0\0\0w\"\xff\n", 8);
  memcpy(text + 16, "\3\0\0\0Net", 7);
  memcpy(text + 32, &(const int64_t[]){2, 3}, 16);
  e[0] = (struct snapshot_entry){.name = 8, .model = 16, .shape = 32, .ndim = 2, .dtype = TENSOR_BF16};
  e[1] = (struct snapshot_entry){.name = 8, .model = 16, .dtype = TENSOR_F64, .flags = SNAPSHOT_GRADIENT | SNAPSHOT_TORN};
  e[2] = (struct snapshot_entry){.name = 8, .model = 16, .dtype_name = 16, .reason = 16};
  r[0] = (struct snapshot_result){.flags = SNAPSHOT_IN_BLOB,
                                  .stats = {.count = 6,
                                            .nans = 1,
                                            .zeros = 2,
                                            .mean = 0.1,
                                            .std = 1,
                                            .min = -1,
                                            .max = 3,
                                            .norm = 4,
                                            .histogram = {1, [15] = 4},
                                            .magnitude = {[31] = 3}}};
  r[1] = (struct snapshot_result){
      .stats = {.count = 2, .nans = 1, .infs = 1, .mean = NAN, .std = NAN, .min = NAN, .max = NAN, .norm = NAN}};
  return spool_snapshot_copy(a, "file:///s\"x");
}

static double number_at(json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static void snapshots(void **state) {
  (void)state;
  struct spool_snapshot *first = make_snapshot();
  first->next = make_snapshot();
  fill(8);
  batch.snapshots = first;
  assert_int_equal(spool_batch_count(&batch), 1);
  assert_int_equal(spool_write(&spool, &batch), 0);
  json_t *file = load(8), *s = json_object_get(file, "snapshots"), *stats = json_object_get(json_array_get(s, 0), "stats");
  assert_int_equal(json_array_size(s), 6);
  assert_string_equal(text_at(s, 0, "id"), "abcdef01234567890000000000000028");
  assert_string_equal(text_at(s, 0, "span_id"), "abcdef01234567890000000000000003");
  assert_string_equal(text_at(s, 0, "tensor_name"), "w\"\xef\xbf\xbd\n");
  assert_string_equal(text_at(s, 0, "dtype"), "bfloat16");
  assert_string_equal(text_at(s, 0, "mode"), "full");
  assert_string_equal(text_at(s, 0, "blob_uri"), "file:///s\"x/weights.safetensors");
  assert_int_equal(json_integer_value(json_array_get(json_object_get(json_array_get(s, 0), "shape"), 1)), 3);
  assert_int_equal(json_integer_value(json_object_get(json_array_get(s, 0), "ts_ns")), 1050);
  assert_true(number_at(stats, "mean") == 0.1 && number_at(stats, "max") == 3 && number_at(stats, "nan") == 1);
  json_t *bins = json_object_get(json_object_get(stats, "histogram"), "bins");
  assert_int_equal(json_array_size(bins), 17);
  assert_true(json_number_value(json_array_get(bins, 0)) == -1 && json_number_value(json_array_get(bins, 16)) == 3 &&
              json_number_value(json_array_get(bins, 4)) == 0);
  assert_int_equal(json_integer_value(json_array_get(json_object_get(json_object_get(stats, "histogram"), "counts"), 15)), 4);
  assert_int_equal(json_integer_value(json_array_get(json_object_get(json_object_get(stats, "magnitude"), "counts"), 31)), 3);
  stats = json_object_get(json_array_get(s, 1), "stats");
  assert_true(json_is_null(json_object_get(stats, "mean")) && json_is_null(json_object_get(stats, "histogram")));
  assert_true(number_at(stats, "inf") == 1 && number_at(stats, "count") == 2);
  assert_true(json_is_null(json_object_get(json_array_get(s, 1), "blob_uri")));
  assert_true(json_is_true(json_object_get(json_object_get(json_array_get(s, 1), "attrs"), "torn")));
  assert_string_equal(json_string_value(json_object_get(json_object_get(json_array_get(s, 1), "attrs"), "kind")), "gradient");
  assert_true(json_is_null(json_object_get(json_array_get(s, 2), "stats")));
  assert_string_equal(text_at(s, 2, "dtype"), "Net");
  assert_string_equal(json_string_value(json_object_get(json_object_get(json_array_get(s, 2), "attrs"), "reason")), "Net");
  json_decref(file);
  batch.snapshots = NULL;
  spool_snapshot_free(first);
}

static void a_file(void **state) {
  (void)state;
  put_span(3, 1, SPAN_ERROR | SPAN_MODE_TRAIN, "{\"a\":[1,\"\xc3\xa9\"]}");
  put_span(4, 0, 0, "");
  put_mark(10, 3, MARK_FLOAT, NAN, 0, "", "{\"u\":\"\xc3\xa9\"}");
  put_mark(11, 3, MARK_FLOAT, -INFINITY, 0, "", "");
  put_mark(12, 3, MARK_FLOAT, 0.1, 0, "", "");
  put_mark(14, 3, MARK_FLOAT, 5, 0, "", "");
  put_mark(16, 3, MARK_FLOAT, 1e308, 0, "", "");
  put_mark(18, 99, MARK_INT, 0, INT64_MIN, "", "");
  put_mark(20, 4, MARK_BOOL, 0, 1, "", "");
  put_mark(22, 4, MARK_STRING, 0, 0, "t\n", "");
  fill(7);
  assert_int_equal(spool_batch_count(&batch), 10);
  assert_int_equal(spool_write(&spool, &batch), 0);
  json_t *file = load(7), *s = json_object_get(file, "spans"), *m = json_object_get(file, "marks");
  assert_int_equal(json_integer_value(json_object_get(file, "schema_version")), 1);
  assert_int_equal(json_integer_value(json_object_get(file, "created_ns")), 7);
  assert_int_equal(json_array_size(json_object_get(file, "snapshots")), 0);
  assert_int_equal(json_array_size(s), 2);
  assert_string_equal(text_at(s, 0, "id"), "abcdef01234567890000000000000003");
  assert_string_equal(text_at(s, 0, "parent_id"), "abcdef01234567890000000000000001");
  assert_string_equal(text_at(s, 0, "name"),
                      "na\"me\\\n\x01\x7f \xc3\xa9 \xf0\x9f\x9a\x82 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd end");
  json_t *attrs = json_object_get(json_array_get(s, 0), "attrs"), *first = json_array_get(s, 0);
  assert_string_equal(json_string_value(json_array_get(json_object_get(attrs, "a"), 1)), "\xc3\xa9");
  assert_string_equal(json_string_value(json_object_get(attrs, "mode")), "train");
  assert_string_equal(json_string_value(json_object_get(attrs, "module")), "Net");
  assert_string_equal(json_string_value(json_object_get(attrs, "exception")), "ValueError");
  assert_true(json_is_true(json_object_get(attrs, "error")));
  assert_int_equal(json_integer_value(json_object_get(first, "start_ns")), 1030);
  assert_int_equal(json_integer_value(json_object_get(first, "end_ns")), 1060);
  assert_int_equal(json_integer_value(json_object_get(first, "rank")), 3);
  assert_int_equal(json_array_size(json_object_get(first, "mark_ids")), 5);
  assert_true(json_is_null(json_object_get(json_array_get(s, 1), "parent_id")));
  assert_true(json_is_null(json_object_get(json_array_get(s, 1), "index")));
  const char *expected[] = {"NaN", NULL, NULL, NULL, NULL, NULL, "t\n", "-Infinity"};
  for (size_t i = 0; i < 8; i++)
    if (expected[i])
      assert_string_equal(text_at(m, i, "value"), expected[i]);
  assert_true(json_real_value(json_object_get(json_array_get(m, 1), "value")) == 0.1);
  assert_true(json_is_real(json_object_get(json_array_get(m, 2), "value"))); /* 5.0 */
  assert_true(json_real_value(json_object_get(json_array_get(m, 3), "value")) == 1e308);
  assert_true(json_integer_value(json_object_get(json_array_get(m, 4), "value")) == INT64_MIN);
  assert_true(json_is_true(json_object_get(json_array_get(m, 5), "value")));
  assert_string_equal(text_at(m, 7, "kind"), "summary");
  assert_string_equal(text_at(m, 0, "kind"), "point");
  json_decref(file);
}

/* Any bytes as names and texts. */
/* What is known of a span counts, where the script has used the same name. */
static void names_of_ours(void **state) {
  (void)state;
  put_span(3, 1, SPAN_ERROR,
           "{\"error\":\"no\",\"errors\":[1,{\"error\":2}],\"x\":\"\\\",\\\"error\\\":\",\"exception\":[\"]\",{}],\"mode\":5}");
  put_span(5, 1, SPAN_ERROR, "{\"error\":1}");
  put_span(7, 1, 0, "{\"error\":1,\"mode\":\"m\",\"module\":2,\"exception\":null}");
  fill(7);
  assert_int_equal(spool_write(&spool, &batch), 0);
  json_t *file = load(7), *s = json_object_get(file, "spans");
  static const char *const wanted[] = {
      "{\"errors\":[1,{\"error\":2}],\"x\":\"\\\",\\\"error\\\":\",\"mode\":5,\"exception\":\"ValueError\",\"error\":true}",
      "{\"exception\":\"ValueError\",\"error\":true}",
      "{\"error\":1,\"mode\":\"m\",\"module\":2,\"exception\":null}",
  };
  for (size_t i = 0; i < 3; i++) {
    json_error_t error;
    json_t *attrs = json_loads(wanted[i], 0, &error);
    assert_non_null(attrs);
    if (!json_equal(json_object_get(json_array_get(s, i), "attrs"), attrs))
      fail_msg("attributes of %zu", i);
    json_decref(attrs);
  }
  json_decref(file);
}

/* Open spans have no end; quiet ones are not written. */
static void open_spans_too(void **state) {
  (void)state;
  struct open_span open[] = {
      {.span = {.type = RING_SPAN, .id = SPAN_ROOT, .name = 1, .start_ns = 1, .index = SPAN_NO_INDEX, .cpu_ns = SPAN_NO_TIME},
       .tid = 4},
      {.span = {.type = RING_SPAN, .id = 2, .parent = 1, .name = 2, .start_ns = 3, .index = 8, .cpu_ns = SPAN_NO_TIME},
       .quiet = true},
      {.span = {.type = RING_SPAN,
                .id = 3,
                .parent = 2,
                .name = 2,
                .start_ns = 3,
                .index = 8,
                .cpu_ns = SPAN_NO_TIME,
                .module = 2,
                .flags = SPAN_MODE_EVAL},
       .tid = 6},
  };
  fill(7);
  assert_int_equal(spool_batch_count(&batch), 0);
  batch.open = open;
  batch.open_count = 3;
  batch.root_attrs = "{\"device\":\"cpu\"}";
  batch.root_attrs_len = strlen(batch.root_attrs);
  assert_int_equal(spool_batch_count(&batch), 2);
  assert_int_equal(spool_write(&spool, &batch), 0);
  json_t *file = load(7), *s = json_object_get(file, "spans"), *root = json_array_get(s, 0), *other = json_array_get(s, 1);
  assert_int_equal(json_array_size(s), 2);
  assert_true(json_is_null(json_object_get(root, "end_ns")) && json_is_null(json_object_get(root, "parent_id")));
  assert_string_equal(json_string_value(json_object_get(json_object_get(root, "attrs"), "device")), "cpu");
  assert_true(json_is_null(json_object_get(other, "end_ns")));
  assert_int_equal(json_integer_value(json_object_get(other, "start_ns")), 1003);
  assert_int_equal(json_integer_value(json_object_get(other, "index")), 8);
  assert_int_equal(json_integer_value(json_object_get(other, "thread_id")), 6);
  assert_int_equal(json_object_size(json_object_get(other, "attrs")), 2);
  json_decref(file);
}

static void always_valid(void **state) {
  (void)state;
  static char text[400];
  srand(5);
  for (unsigned round = 1; round <= 300; round++) {
    size_t len = (size_t)(rand() % 399);
    for (size_t i = 0; i < len; i++)
      text[i] = (char)(rand() % 4 ? 0x80 + rand() % 128 : 1 + rand() % 127);
    text[len] = '\0';
    name_text = text;
    keep_forget();
    put_span(3, 1, 0, "");
    put_mark(10, 3, MARK_STRING, 0, 0, text, "");
    double d;
    uint64_t bits = (uint64_t)rand() << 42 ^ (uint64_t)rand() << 21 ^ (uint64_t)rand();
    memcpy(&d, &bits, sizeof d);
    put_mark(12, 3, MARK_FLOAT, d, 0, "", "");
    fill(round);
    assert_int_equal(spool_write(&spool, &batch), 0);
    json_t *file = load(round);
    json_t *value = json_object_get(json_array_get(json_object_get(file, "marks"), 1), "value");
    if (d == d && d - d == 0)
      assert_true(json_real_value(value) == d);
    else
      assert_true(json_is_string(value));
    json_decref(file);
  }
  name_text = "n";
}

/* A job that has set its own numbers' format. */
static void another_decimal_point(void **state) {
  (void)state;
  static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "nl_NL.UTF-8", "ps_AF.UTF-8"};
  bool found = false;
  for (size_t i = 0; i < sizeof names / sizeof names[0] && !found; i++)
    found = setlocale(LC_NUMERIC, names[i]) != NULL;
  if (!found)
    skip();
  put_mark(12, 3, MARK_FLOAT, 0.5, 0, "", "");
  fill(1);
  assert_int_equal(spool_write(&spool, &batch), 0);
  setlocale(LC_NUMERIC, "C");
  json_decref(load(1));
}

static void oldest_go_first(void **state) {
  (void)state;
  char path[PATH_MAX];
  put_span(3, 1, 0, "");
  spool.max_bytes = 5000;
  for (uint64_t i = 1; i <= 3000; i++) {
    fill(i);
    assert_int_equal(spool_write(&spool, &batch), 0);
    assert_true(spool.bytes <= 5000);
    assert_true(there(i));
  }
  struct stat st;
  path_of(3000, path);
  assert_int_equal(stat(path, &st), 0);
  unsigned fit = (unsigned)(5000 / st.st_size), left = 0;
  for (uint64_t i = 1; i <= 3000; i++)
    left += there(i);
  assert_true(left <= fit && left + 2 >= fit && there(3000));
  assert_int_equal(spool.removed, 3000 - left);
}

static void write_many(uint64_t from, uint64_t to) {
  for (uint64_t i = from; i < to; i++) {
    fill(i);
    assert_int_equal(spool_write(&spool, &batch), 0);
  }
}

/* What a file costs does not grow with those that are there, neither far below the bound nor at it. */
static void no_look_for_each_file(void **state) {
  (void)state;
  put_span(3, 1, 0, "");
  write_many(1, 2000);
  looks = entries_seen = 0;
  write_many(2000, 2500);
  assert_int_equal(looks, 0);
  struct stat st;
  char path[PATH_MAX], again[PATH_MAX];
  path_of(2499, path);
  assert_int_equal(stat(path, &st), 0);
  snprintf(again, sizeof again, "%s/a/b", folder);
  for (unsigned files = 500; files <= 2000; files *= 2) {
    assert_int_equal(spool_init(&spool, again, files * (uint64_t)st.st_size), 0);
    write_many(4000 + files * 10, 4000 + files * 10 + files); /* up to the bound */
    looks = entries_seen = 0;
    write_many(4000 + files * 11, 4000 + files * 13);
    assert_in_range(spool.bytes, files * (uint64_t)st.st_size * 9 / 10, spool.max_bytes);
    assert_in_range(entries_seen, 1, 32 * 2 * files);
    assert_in_range(looks, 1, 64);
  }
}

/* What others have left there counts; what is no batch is not touched. */
static void files_of_others(void **state) {
  (void)state;
  char path[PATH_MAX];
  put_span(3, 1, 0, "");
  for (uint64_t i = 1; i <= 50; i++) {
    fill(i);
    assert_int_equal(spool_write(&spool, &batch), 0);
  }
  snprintf(path, sizeof path, "%s/a/b/notes.json", folder);
  close(open(path, O_CREAT | O_WRONLY, 0600));
  char again[PATH_MAX];
  snprintf(again, sizeof again, "%s/a/b", folder);
  assert_int_equal(spool_init(&spool, again, 2000), 0);
  fill(60);
  assert_int_equal(spool_write(&spool, &batch), 0);
  assert_true(there(60) && !there(1) && !there(40));
  assert_int_equal(access(path, F_OK), 0);
}

static void larger_than_the_bound(void **state) {
  (void)state;
  put_span(3, 1, 0, "");
  spool.max_bytes = 1;
  for (uint64_t i = 1; i <= 3; i++) {
    fill(i);
    assert_int_equal(spool_write(&spool, &batch), 0);
    assert_true(there(i) && !there(i - 1));
  }
}

static unsigned entries(const char *path) {
  DIR *d = opendir(path);
  unsigned n = 0;
  for (const struct dirent *e; d && (e = readdir(d));)
    n += e->d_name[0] != '.';
  if (d)
    closedir(d);
  return n;
}

static void a_full_disk(void **state) {
  (void)state;
  struct rlimit before, small = {4000, RLIM_INFINITY};
  char path[PATH_MAX];
  signal(SIGXFSZ, SIG_IGN);
  for (uint64_t i = 0; i < 100; i++)
    put_span(2 * i + 2, 1, 0, "");
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  fill(1);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  int r = spool_write(&spool, &batch);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(r, -EFBIG);
  snprintf(path, sizeof path, "%s/a/b", folder);
  assert_int_equal(entries(path), 0);
  assert_int_equal(spool.failures, 1);
  assert_int_equal(spool_write(&spool, &batch), 0);
  json_decref(load(1));
}

static void no_folder(void **state) {
  (void)state;
  char path[PATH_MAX];
  put_span(3, 1, 0, "");
  fill(1);
  snprintf(path, sizeof path, "%s/a", folder);
  close(open(path, O_CREAT | O_WRONLY, 0600)); /* a file where the folder is to be */
  assert_int_equal(spool_write(&spool, &batch), -ENOTDIR);
  assert_int_equal(spool.failures, 1);
  assert_int_equal(spool_init(&spool, "/proc/nothing/here", 1000), 0);
  assert_true(spool_write(&spool, &batch) < 0);
  static char longer[PATH_MAX + 10];
  memset(longer, 'x', sizeof longer - 1);
  assert_int_equal(spool_init(&spool, longer, 1000), -ENAMETOOLONG);
}

/* Only those of the earlier part that were moved are written again. */
static void moved_afterwards(void **state) {
  (void)state;
  put_span(3, 2, 0, "");
  put_span(4, 1, 0, "");
  fill(1);
  size_t from = batch.spans_bytes;
  struct ring_move move = {.type = RING_MOVE, .span = 2, .parent = 1};
  keep_put(&move, 9, NULL, 0, NULL, 0);
  put_span(5, 1, 0, "");
  fill(2);
  batch.spans_from = from;
  keep_moves_apply(spans, batch.spans_bytes, from);
  assert_int_equal(spool_batch_count(&batch), 2);
  assert_int_equal(spool_write(&spool, &batch), 0);
  json_t *file = load(2), *s = json_object_get(file, "spans");
  assert_int_equal(json_array_size(s), 2);
  assert_string_equal(text_at(s, 0, "id"), "abcdef01234567890000000000000003");
  assert_string_equal(text_at(s, 0, "parent_id"), "abcdef01234567890000000000000001");
  assert_string_equal(text_at(s, 1, "id"), "abcdef01234567890000000000000005");
  json_decref(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_file, begin, end),
      cmocka_unit_test_setup_teardown(snapshots, begin, end),
      cmocka_unit_test_setup_teardown(names_of_ours, begin, end),
      cmocka_unit_test_setup_teardown(open_spans_too, begin, end),
      cmocka_unit_test_setup_teardown(always_valid, begin, end),
      cmocka_unit_test_setup_teardown(another_decimal_point, begin, end),
      cmocka_unit_test_setup_teardown(oldest_go_first, begin, end),
      cmocka_unit_test_setup_teardown(no_look_for_each_file, begin, end),
      cmocka_unit_test_setup_teardown(files_of_others, begin, end),
      cmocka_unit_test_setup_teardown(larger_than_the_bound, begin, end),
      cmocka_unit_test_setup_teardown(a_full_disk, begin, end),
      cmocka_unit_test_setup_teardown(no_folder, begin, end),
      cmocka_unit_test_setup_teardown(moved_afterwards, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
