// links: agent/segment.c agent/fd.c
/* Names get one id each, in memory that a collector can read; threads, forks, lost descriptors, no room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/segment.h"

static int open_segment(void **state) {
  (void)state;
  return segment_open(0xabcdef);
}

static uint32_t name(const char *text) {
  return segment_name(text, strlen(text));
}

/* What a reader finds for an id, in its own mapping of the descriptor. */
static size_t read_name(uint32_t id, char *out, size_t size) {
  char *memory = mmap(NULL, SEGMENT_BYTES, PROT_READ, MAP_SHARED, segment_fd(), 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  const struct ring_segment *shm = (const struct ring_segment *)memory;
  uint32_t len;
  assert_true((size_t)id * 4 + 4 <= shm->names_used);
  memcpy(&len, memory + SEGMENT_NAMES_OFFSET + (size_t)id * 4, 4);
  assert_true((size_t)id * 4 + 4 + len <= shm->names_used);
  assert_true(len <= size);
  memcpy(out, memory + SEGMENT_NAMES_OFFSET + (size_t)id * 4 + 4, len);
  munmap(memory, SEGMENT_BYTES);
  return len;
}

static void assert_name(uint32_t id, const char *text, size_t len) {
  char buf[NAME_MAX_BYTES];
  assert_int_equal(read_name(id, buf, sizeof(buf)), len);
  assert_memory_equal(buf, text, len);
}

static void header_and_seals(void **state) {
  (void)state;
  const struct ring_segment *shm = segment_get();
  assert_true(shm->magic == SEGMENT_MAGIC);
  assert_int_equal(shm->bytes, SEGMENT_BYTES);
  assert_true(shm->session == 0xabcdef);
  int fd = segment_fd(), seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  assert_true(fd >= 200);
  assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  assert_int_equal(fcntl(fd, F_GET_SEALS) & seals, seals);
  struct stat st;
  assert_int_equal(fstat(fd, &st), 0);
  assert_int_equal(st.st_size, SEGMENT_BYTES);
}

static void same_bytes_same_id(void **state) {
  (void)state;
  uint32_t a = name("forward"), b = name("backward"), empty = segment_name("", 0), zero = segment_name("a\0b", 3);
  assert_true(a && b && empty && zero);
  assert_true(a != b && empty != a && zero != a);
  assert_int_equal(name("forward"), a);
  assert_int_equal(segment_name("forwardness", 7), a);
  assert_int_equal(segment_name("a\0b", 3), zero);
  assert_true(name("a") != zero);
  assert_name(a, "forward", 7);
  assert_name(b, "backward", 8);
  assert_name(empty, "", 0);
  assert_name(zero, "a\0b", 3);
  assert_true(name("\xff\xfe") != 0);
}

static void long_names_are_cut(void **state) {
  (void)state;
  static char text[NAME_MAX_BYTES + 100];
  memset(text, 'n', sizeof(text));
  uint32_t id = segment_name(text, sizeof(text));
  assert_name(id, text, NAME_MAX_BYTES);
  assert_int_equal(segment_name(text, NAME_MAX_BYTES), id);
  memcpy(text + NAME_MAX_BYTES - 1, "\xc3\xa9", 2); /* a character across the limit */
  assert_name(segment_name(text, sizeof(text)), text, NAME_MAX_BYTES - 1);
}

static void no_room_is_counted(void **state) {
  (void)state;
  char text[64];
  uint32_t first = name("first"), last = 0;
  unsigned refused = 0;
  for (unsigned i = 0; refused < 10; i++) {
    int n = snprintf(text, sizeof(text), "a name that takes some room %u", i);
    uint32_t id = segment_name(text, (size_t)n);
    refused += id == 0;
    last = id ? id : last;
  }
  assert_int_equal(segment_get()->dropped_names, 10);
  assert_true(segment_get()->names_used <= SEGMENT_NAMES_BYTES);
  assert_true(last > first);
  assert_int_equal(name("first"), first); /* known ones stay known */
}

/* Tiny names fill the table before the memory. */
static void table_full_is_counted_too(void **state) {
  (void)state;
  char text[16];
  uint64_t given = 0;
  for (unsigned i = 0; i < 120000; i++)
    given += segment_name(text, (size_t)snprintf(text, sizeof(text), "%x", i % 65536 ? i : 65536)) != 0;
  assert_true(given > 100000);
  assert_int_equal(given + segment_get()->dropped_names, 120000);
}

#define THREADS 4
#define NAMES 5000
static uint32_t ids[THREADS][NAMES];

static void *intern_all(void *arg) {
  uint32_t *mine = arg;
  char text[32];
  for (unsigned i = 0; i < NAMES; i++)
    mine[i] = segment_name(text, (size_t)snprintf(text, sizeof(text), "name %u", i));
  return NULL;
}

static void threads_agree(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  char text[32];
  for (unsigned t = 0; t < THREADS; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, intern_all, ids[t]), 0);
  for (unsigned t = 0; t < THREADS; t++)
    assert_int_equal(pthread_join(threads[t], NULL), 0);
  for (unsigned i = 0; i < NAMES; i++) {
    for (unsigned t = 1; t < THREADS; t++)
      assert_int_equal(ids[t][i], ids[0][i]);
    if (i % 100 == 0)
      assert_name(ids[0][i], text, (size_t)snprintf(text, sizeof(text), "name %u", i));
  }
}

static void child_of_a_fork_has_its_own(void **state) {
  (void)state;
  uint32_t parent_name = name("of the parent");
  uint32_t used = segment_get()->names_used;
  unsigned generation = segment_generation();
  pid_t pid = fork();
  if (pid == 0) {
    int fd = segment_fd();
    segment_forget();
    if (segment_get() || segment_fd() != -1 || name("x") != 0 || fcntl(fd, F_GETFD) != -1)
      _exit(1);
    if (segment_open(7) != 0 || segment_generation() == generation)
      _exit(2);
    _exit(name("of the child") && segment_get()->session == 7 ? 0 : 3);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(segment_get()->names_used, used);
  assert_int_equal(name("of the parent"), parent_name);
}

static void lost_descriptor_can_be_renewed(void **state) {
  (void)state;
  uint32_t id = name("kept");
  struct ring_segment *place = segment_get();
  place->dropped_depth = 5;
  int fd = segment_fd(), file = open("/dev/null", O_WRONLY | O_CLOEXEC);
  assert_int_equal(dup2(file, fd), fd); /* the script's own file at that number */
  assert_int_equal(segment_fd(), -1);
  assert_int_equal(segment_renew(), 0);
  assert_true(fcntl(fd, F_GETFD) >= 0); /* not closed */
  assert_ptr_equal(segment_get(), place);
  assert_int_equal(place->dropped_depth, 5);
  assert_int_equal(name("kept"), id);
  assert_name(id, "kept", 4);
  assert_name(name("new"), "new", 3); /* seen through the new descriptor */
  close(fd);
  close(file);
}

static void without_memfd_it_is_private_memory(void **state) {
  (void)state;
  struct rlimit none = {0}, before;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none.rlim_max = before.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  int r = segment_open(1);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_int_equal(r, 0);
  assert_int_equal(segment_fd(), -1);
  assert_int_equal(segment_renew(), -ENOTSUP);
  assert_true(name("still named") != 0);
}

static void nothing_before_it_is_opened(void **state) {
  (void)state;
  assert_null(segment_get());
  assert_int_equal(segment_fd(), -1);
  assert_int_equal(name("x"), 0);
  assert_int_equal(segment_renew(), -ENOTSUP);
}

#define WITH_SEGMENT(test) cmocka_unit_test_setup(test, open_segment)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_before_it_is_opened),
      WITH_SEGMENT(header_and_seals),
      WITH_SEGMENT(same_bytes_same_id),
      WITH_SEGMENT(long_names_are_cut),
      WITH_SEGMENT(no_room_is_counted),
      WITH_SEGMENT(table_full_is_counted_too),
      WITH_SEGMENT(threads_agree),
      WITH_SEGMENT(child_of_a_fork_has_its_own),
      WITH_SEGMENT(lost_descriptor_can_be_renewed),
      cmocka_unit_test(without_memfd_it_is_private_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
