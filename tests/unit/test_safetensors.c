// links: proto/safetensors.c proto/tensor_scalar.c proto/tensor_stats.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
/* Files of tensors, byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/safetensors.h"

static char path[64];
static int folder = -1;

static int set_up(void **state) {
  (void)state;
  strcpy(path, "/tmp/cirron-test-XXXXXX");
  assert_non_null(mkdtemp(path));
  folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return folder < 0;
}

static int tear_down(void **state) {
  (void)state;
  char command[96];
  close(folder);
  snprintf(command, sizeof command, "rm -rf %s", path);
  return system(command);
}

static int files(void) {
  int n = 0;
  DIR *dir = opendir(path);
  for (struct dirent *e; (e = readdir(dir));)
    n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
  closedir(dir);
  return n;
}

static size_t contents(char *data, size_t room) {
  int fd = openat(folder, "w.safetensors", O_RDONLY);
  assert_true(fd >= 0);
  ssize_t n = read(fd, data, room);
  close(fd);
  assert_true(n > 8);
  return (size_t)n;
}

#define TENSOR(text, type, dims, ...)                                                                                          \
  ((struct safetensors_tensor){text, sizeof text - 1, type, dims, (const int64_t[]){__VA_ARGS__}, 0, 0, 0})

static struct safetensors *begin(struct safetensors_tensor *tensors, size_t n) {
  struct safetensors *f = NULL;
  assert_int_equal(safetensors_begin(folder, "w.safetensors", "00ff", tensors, n, &f), 0);
  return f;
}

static void test_a_file(void **state) {
  (void)state;
  struct safetensors_tensor t[] = {TENSOR("b", TENSOR_U8, 1, 3), TENSOR("a", TENSOR_F32, 2, 1, 2),
                                   TENSOR("d", TENSOR_F64, 0, 0), TENSOR("e", TENSOR_F32, 2, 0, 7)};
  struct safetensors *f = begin(t, 4);
  assert_true(t[2].offset == 0 && t[1].offset == 8 && t[3].bytes == 0 && t[0].offset == 16);
  assert_int_equal(safetensors_seek(f, 0), 0);
  assert_int_equal(safetensors_put(f, "x", 1), 0);
  assert_int_equal(safetensors_put(f, "yz", 2), 0);
  assert_int_equal(safetensors_put(f, "!", 1), -EIO); /* more than it has */
  assert_int_equal(safetensors_seek(f, 1), 0);
  assert_int_equal(safetensors_put(f, "12345678", 8), 0);
  assert_int_equal(safetensors_seek(f, 3), 0);
  assert_int_equal(safetensors_seek(f, 2), 0);
  assert_int_equal(safetensors_put(f, "ABCDEFGH", 8), 0);
  assert_int_equal(access(path, F_OK), 0);
  assert_int_equal(faccessat(folder, "w.safetensors", F_OK, 0), -1); /* not before it is whole */
  assert_int_equal(safetensors_end(f, true), 0);
  char data[1024];
  size_t n = contents(data, sizeof data);
  static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]},"
                               "\"d\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                               "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[16,16]},"
                               "\"__metadata__\":{\"format\":\"pt\",\"span\":\"00ff\",\"torn\":\"true\"}}";
  size_t len = (uint8_t)data[0] | (size_t)(uint8_t)data[1] << 8;
  assert_true(len % 8 == 0 && len >= sizeof header - 1 && len < sizeof header + 8);
  assert_memory_equal(data + 8, header, sizeof header - 1);
  for (size_t i = sizeof header - 1; i < len; i++)
    assert_int_equal(data[8 + i], ' ');
  assert_int_equal(n, 8 + len + 19);
  assert_memory_equal(data + 8 + len, "ABCDEFGH12345678xyz", 19);
  assert_int_equal(files(), 1);
}

static void test_names(void **state) {
  (void)state;
  struct safetensors_tensor t[] = {TENSOR("q\"\\\n\0\x1f", TENSOR_U8, 1, 0),
                                   TENSOR("\xff", TENSOR_U8, 1, 0),
                                   TENSOR("\xef\xbf\xbd", TENSOR_U8, 1, 0),
                                   TENSOR("w", TENSOR_U8, 1, 0),
                                   TENSOR("w", TENSOR_F32, 1, 9),
                                   TENSOR("__metadata__", TENSOR_U8, 1, 0),
                                   TENSOR("n", TENSOR_NONE, 1, 0),
                                   TENSOR("\xc3\xa9\xf0\x9f", TENSOR_U8, 1, 0),
                                   TENSOR("", TENSOR_U8, 1, 0)};
  struct safetensors *f = begin(t, 9);
  static const bool out[] = {false, false, true, false, true, true, true, false, false};
  for (int i = 0; i < 9; i++)
    assert_int_equal(t[i].left_out, out[i]);
  assert_int_equal(safetensors_seek(f, 4), -EIO);
  assert_int_equal(safetensors_end(f, false), 0);
  char data[1024];
  data[contents(data, sizeof data - 1)] = '\0';
  assert_non_null(strstr(data + 8, "\"q\\\"\\\\\\u000a\\u0000\\u001f\":"));
  assert_non_null(strstr(data + 8, "\"\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\":"));
  assert_non_null(strstr(data + 8, "\"torn\":\"false\"}}"));
}

static void test_what_cannot_be(void **state) {
  (void)state;
  struct safetensors *f = NULL;
  struct safetensors_tensor negative = TENSOR("a", TENSOR_U8, 1, -1), huge = TENSOR("a", TENSOR_F64, 2, INT64_MAX, 2);
  struct safetensors_tensor t = TENSOR("a", TENSOR_U8, 1, 4);
  assert_int_equal(safetensors_begin(folder, "w", "", &negative, 1, &f), -EOVERFLOW);
  assert_int_equal(safetensors_begin(folder, "w", "", &huge, 1, &f), -EOVERFLOW);
  assert_int_equal(safetensors_begin(-1, "w", "", &t, 1, &f), -EBADF);
  assert_null(f);
  f = begin(&t, 1);
  assert_int_equal(safetensors_end(f, false), -EIO); /* nothing of it came */
  f = begin(&t, 1);
  assert_int_equal(safetensors_seek(f, 0), 0);
  assert_int_equal(safetensors_put(f, "abc", 3), 0);
  assert_int_equal(safetensors_end(f, false), -EIO);
  f = begin(&t, 1);
  safetensors_drop(f);
  safetensors_drop(NULL);
  assert_int_equal(files(), 0);
}

static void test_what_others_left(void **state) {
  (void)state;
  struct safetensors_tensor t = TENSOR("a", TENSOR_U8, 1, 0);
  static const char *const there[] = {".w.safetensors.00000001.tmp", ".w.safetensors.held.tmp", ".w.safetensors.tmp",
                                      ".other.1.tmp"};
  int held = -1;
  for (int i = 0; i < 4; i++) {
    int fd = openat(folder, there[i], O_WRONLY | O_CREAT, 0600);
    if (i == 1)
      held = fd;
    else
      close(fd);
  }
  assert_int_equal(symlinkat("/dev/null", folder, ".w.safetensors.link.tmp"), 0);
  assert_int_equal(flock(held, LOCK_EX), 0);
  assert_int_equal(safetensors_end(begin(&t, 1), false), 0);
  assert_int_equal(faccessat(folder, there[0], F_OK, 0), -1);
  for (int i = 1; i < 4; i++)
    assert_int_equal(faccessat(folder, there[i], F_OK, 0), 0);
  close(held);
  assert_int_equal(files(), 5);
}

static void test_large(void **state) {
  (void)state;
  enum { N = 3000, BYTES = 500000 };
  static struct safetensors_tensor t[N];
  static char names[N][12], data[BYTES], back[BYTES];
  static const int64_t small[] = {5}, large[] = {BYTES};
  for (int i = 0; i < N; i++) {
    snprintf(names[i], sizeof names[i], "%d", i);
    t[i] = (struct safetensors_tensor){
        names[i], strlen(names[i]), i % 2 ? TENSOR_U8 : TENSOR_I16, 1, i % 500 ? small : large, 0, 0, 0};
  }
  struct safetensors *f = begin(t, N);
  for (int i = 0; i < N; i++) {
    memset(data, i, sizeof data);
    assert_int_equal(safetensors_seek(f, (size_t)i), 0);
    for (uint64_t left = t[i].bytes, n; left; left -= n) {
      n = left < BYTES - 7u * (unsigned)(i % 3) ? left : BYTES - 7u * (unsigned)(i % 3);
      assert_int_equal(safetensors_put(f, data, n), 0);
    }
  }
  assert_int_equal(safetensors_end(f, false), 0);
  int fd = openat(folder, "w.safetensors", O_RDONLY);
  uint64_t len;
  assert_int_equal(read(fd, &len, 8), 8);
  for (int i = 0; i < N; i++) {
    size_t n = t[i].bytes < BYTES ? t[i].bytes : BYTES;
    memset(data, i, n);
    assert_int_equal(pread(fd, back, n, (off_t)(8 + len + t[i].offset)), n);
    assert_memory_equal(back, data, n);
  }
  close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_a_file), TEST(test_names), TEST(test_what_cannot_be),
                                     TEST(test_what_others_left), TEST(test_large)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
