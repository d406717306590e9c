// links: agent/snapshot_area.c agent/fd.c agent/clock.c
/* The memory of snapshots: which area is taken when, what stays in it, who waits at it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/clock.h"
#include "agent/py.h"
#include "agent/snapshot_area.h"

#define SESSION 0x1234567890abcdefu
#define MS 1000000ull

struct py_api py;

static int set_up(void **state) {
  (void)state;
  snapshot_area_forget();
  return 0;
}

static int take(uint32_t entries, uint64_t text) {
  return snapshot_area_take(SESSION, entries, 1000, text, true);
}

/* As snapshot.c does, so that it is waited for. */
static struct snapshot_area *ask(uint64_t number) {
  struct snapshot_area *area = snapshot_area_get();
  area->number = number;
  return area;
}

static void a_new_one_is_as_said(void **state) {
  (void)state;
  assert_null(snapshot_area_get());
  assert_int_equal(take(10, 1), 1);
  const struct snapshot_area *area = snapshot_area_get();
  assert_true(area->magic == SNAPSHOT_MAGIC && area->abi == SNAPSHOT_ABI && area->session == SESSION);
  assert_true(area->entries >= 10 && area->text_bytes >= 1000);
  assert_true(SNAPSHOT_BYTES(area->entries, area->text_bytes) == area->bytes);
  struct snapshot_asked asked;
  assert_false(snapshot_area_asked(0, &asked));
  ask(1);
  assert_true(snapshot_area_asked(0, &asked));
  struct stat st;
  assert_int_equal(fstat(asked.fd, &st), 0);
  assert_int_equal(st.st_size, area->bytes);
  assert_true(asked.area == area && asked.folder == -1 && !asked.uri);
  assert_false(snapshot_area_asked(1, &asked));
}

static void one_that_is_waited_for_is_not_used(void **state) {
  (void)state;
  assert_int_equal(take(10, 1), 1);
  struct snapshot_area *first = ask(1), *areas[8] = {first};
  for (unsigned i = 1; i < 8; i++) {
    assert_int_equal(take(10, 1), 1); /* a new memory has no text yet */
    areas[i] = ask(i + 1);
    for (unsigned k = 0; k < i; k++)
      assert_ptr_not_equal(areas[i], areas[k]);
  }
  assert_int_equal(take(10, 1), -EBUSY);
  assert_ptr_equal(snapshot_area_get(), areas[7]);
  struct snapshot_asked asked;
  for (uint64_t n = 0; n < 8; n++) { /* they are handed over in their order */
    assert_true(snapshot_area_asked(n, &asked));
    assert_ptr_equal(asked.area, areas[n]);
  }
  areas[3]->stored = 4;
  assert_int_equal(take(10, 1), 0); /* with the text that it had */
  assert_ptr_equal(snapshot_area_get(), areas[3]);
  assert_true(snapshot_area_asked(3, &asked));
  assert_ptr_equal(asked.area, areas[4]);
}

static void a_larger_one_takes_its_place(void **state) {
  (void)state;
  assert_int_equal(take(10, 1), 1);
  unsigned before = snapshot_area_generation();
  assert_int_equal(take(10, 1), 0);
  assert_int_equal(snapshot_area_generation(), before);
  assert_int_equal(take(10, 2), 1); /* other text, the same memory */
  assert_int_equal(snapshot_area_generation(), before);
  assert_int_equal(take(1000, 2), 1);
  assert_true(snapshot_area_get()->entries >= 1000 && snapshot_area_generation() != before);
  assert_int_equal(snapshot_area_take(SESSION, SNAPSHOT_MAX_ENTRIES + 1, 1, 2, true), -E2BIG);
  assert_int_equal(snapshot_area_take(SESSION, 1, (size_t)SNAPSHOT_MAX_TEXT + 1, 2, true), -E2BIG);
  assert_true(snapshot_area_get()->entries >= 1000);
}

static void the_script_closed_it(void **state) {
  (void)state;
  assert_int_equal(take(10, 1), 1);
  ask(1);
  struct snapshot_asked asked;
  assert_true(snapshot_area_asked(0, &asked));
  close(asked.fd);
  assert_true(snapshot_area_asked(0, &asked));
  assert_int_equal(asked.fd, -1);
  snapshot_area_get()->stored = 1;
  assert_int_equal(take(10, 1), 1); /* nobody can have that one */
}

static void private_where_nothing_is_shared(void **state) {
  (void)state;
  assert_int_equal(snapshot_area_take(SESSION, 10, 1000, 1, false), 1);
  ask(1);
  struct snapshot_asked asked;
  assert_true(snapshot_area_asked(0, &asked));
  assert_int_equal(asked.fd, -1);
  snapshot_area_stored(asked.area);
  assert_false(snapshot_area_asked(0, &asked));
}

static void text_that_stays_and_text_that_goes(void **state) {
  (void)state;
  const int64_t dims[] = {3, -4};
  assert_int_equal(take(10, 1), 1);
  snapshot_area_text_begin();
  uint32_t name = snapshot_area_put_name("weight", 6), at = snapshot_area_put_dims(dims, 2), len;
  snapshot_area_text_keep();
  assert_true(name && name % 4 == 0 && at % 8 == 0);
  uint32_t odd = snapshot_area_put_name("x", 1);
  snapshot_area_text_begin();
  assert_int_equal(snapshot_area_put_name("other", 5), odd);
  memcpy(&len, snapshot_area_text() + name, sizeof len);
  assert_int_equal(len, 6);
  assert_memory_equal(snapshot_area_text() + name + sizeof len, "weight", 6);
  assert_memory_equal(snapshot_area_text() + at, dims, sizeof dims);
}

static void long_names_are_cut(void **state) {
  (void)state;
  static char name[2 * SNAPSHOT_NAME_MAX];
  memset(name, 'x', sizeof name);
  memcpy(name + SNAPSHOT_NAME_MAX - 1, "\xc3\xa9", 2); /* not in the middle of a character */
  assert_int_equal(snapshot_area_take(SESSION, 1, 4000, 1, true), 1);
  snapshot_area_text_begin();
  uint32_t at = snapshot_area_put_name(name, sizeof name), len;
  memcpy(&len, snapshot_area_text() + at, sizeof len);
  assert_int_equal(len, SNAPSHOT_NAME_MAX - 1);
}

static void the_folder_goes_with_it(void **state) {
  (void)state;
  struct owned_fd folder;
  assert_int_equal(fd_own(dup(0), &folder), 0);
  int fd = folder.fd;
  assert_int_equal(take(10, 1), 1);
  snapshot_area_folder(&folder, "file:///x");
  assert_int_equal(folder.fd, -1);
  assert_int_equal(snapshot_area_folder_fd(), fd);
  ask(1);
  struct snapshot_asked asked;
  assert_true(snapshot_area_asked(0, &asked));
  assert_int_equal(asked.folder, fd);
  assert_string_equal(asked.uri, "file:///x");
  snapshot_area_get()->stored = 1;
  assert_int_equal(take(10, 1), 0);
  assert_int_equal(snapshot_area_folder_fd(), -1);
  assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void *reads(void *arg) {
  struct snapshot_area *area = arg;
  for (uint32_t i = 1; i <= 5; i++) {
    usleep(2000);
    __atomic_store_n(&area->done, i, __ATOMIC_RELEASE);
    syscall(SYS_futex, &area->done, FUTEX_WAKE, 1, NULL, NULL, 0);
  }
  __atomic_store_n(&area->finished, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void who_waits_sees_it(void **state) {
  (void)state;
  assert_int_equal(take(10, 1), 1);
  struct snapshot_area *area = ask(1);
  pthread_t reader;
  assert_int_equal(pthread_create(&reader, NULL, reads, area), 0);
  uint64_t until = clock_system() + 10000 * MS;
  while (snapshot_area_wait(area, 5, until) < 5)
    assert_true(clock_system() < until);
  pthread_join(reader, NULL);
  assert_int_equal(snapshot_area_wait(area, 6, clock_system() + 10000 * MS), 5); /* there will be no more */
  area->finished = 0;
  assert_int_equal(snapshot_area_wait(area, 6, clock_system() - 1), 5);
}

/* The session ends in another thread while one waits: what it waits at stays. */
static void forgotten_meanwhile(void **state) {
  (void)state;
  assert_int_equal(take(10, 1), 1);
  struct snapshot_area *area = ask(1);
  snapshot_area_waits(true);
  snapshot_area_forget();
  assert_null(snapshot_area_get());
  assert_int_equal(area->number, 1);
  snapshot_area_waits(false);
  munmap(area, area->bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, set_up)
      T(a_new_one_is_as_said),
      T(one_that_is_waited_for_is_not_used),
      T(a_larger_one_takes_its_place),
      T(the_script_closed_it),
      T(private_where_nothing_is_shared),
      T(text_that_stays_and_text_that_goes),
      T(long_names_are_cut),
      T(the_folder_goes_with_it),
      T(who_waits_sees_it),
      T(forgotten_meanwhile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
