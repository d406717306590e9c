// links: collectord/reader.c collectord/pass.c collectord/ahead.c collectord/area.c collectord/blob.c collectord/process.c collectord/clock.c collectord/mapping.c collectord/utf8.c proto/safetensors.c proto/tensor_read.c proto/tensor_scalar.c proto/tensor_stats.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
/* Tensors read out of another process, by threads of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectord/process.h"
#include "collectord/reader.h"
#include "tests/support/ring_maker.h"

#define ENTRIES 64u
#define TEXT 4096u
#define PREFIX 9u

struct fixture {
  struct reader *reader;
  pid_t pid;
  int pidfd;
  float *numbers; /* at the same place in both */
};

struct listed {
  int fd;
  struct snapshot_area *head;
  struct area *area;
};

enum { NUMBERS = 1 << 20 };

static int set_up(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  f->numbers = malloc(NUMBERS * sizeof *f->numbers);
  for (int i = 0; i < NUMBERS; i++)
    f->numbers[i] = (float)(i % 5);
  f->pid = fork();
  if (f->pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
      pause();
  }
  f->pidfd = process_open(f->pid);
  *state = f;
  return f->pidfd < 0 || reader_new(&f->reader) != 0;
}

static void kill_it(struct fixture *f) {
  if (f->pid) {
    kill(f->pid, SIGKILL);
    waitpid(f->pid, NULL, 0);
  }
  f->pid = 0;
}

static int tear_down(void **state) {
  struct fixture *f = *state;
  kill_it(f);
  assert_true(reader_stop(f->reader));
  assert_true(reader_stop(f->reader)); /* nothing is left to stop */
  reader_free(f->reader);
  close(f->pidfd);
  free(f->numbers);
  free(f);
  return 0;
}

static struct listed list(const struct fixture *f, uint32_t count, int64_t numbers) {
  struct listed l;
  void *memory;
  size_t bytes = SNAPSHOT_BYTES(ENTRIES, TEXT);
  l.fd = maker_memfd(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, &memory);
  l.head = memory;
  *l.head = (struct snapshot_area){.magic = SNAPSHOT_MAGIC,
                                   .abi = SNAPSHOT_ABI,
                                   .entries = ENTRIES,
                                   .bytes = bytes,
                                   .text_bytes = TEXT,
                                   .session = PREFIX,
                                   .number = 1,
                                   .count = count,
                                   .reason = SNAPSHOT_EPOCH};
  struct snapshot_entry *entries = (void *)((char *)memory + SNAPSHOT_ENTRIES_OFFSET);
  memcpy((char *)memory + SNAPSHOT_TEXT_OFFSET(ENTRIES) + 8, &numbers, sizeof numbers);
  for (uint32_t i = 0; i < count; i++)
    entries[i] = (struct snapshot_entry){
        .address = (uintptr_t)f->numbers, .shape = 8, .strides = SNAPSHOT_CONTIGUOUS, .dtype = TENSOR_F32, .ndim = 1};
  assert_int_equal(area_open(l.fd, bytes, PREFIX, &l.area), 0);
  return l;
}

static void unlist(struct listed *l) {
  area_unref(l->area);
  munmap(l->head, SNAPSHOT_BYTES(ENTRIES, TEXT));
  close(l->fd);
}

static struct pass *take(const struct fixture *f, const struct listed *l, pid_t pid) {
  struct pass *p;
  assert_int_equal(pass_new(l->area, 1, PREFIX, pid, f->pidfd, -1, &p), 0);
  reader_take(f->reader, p);
  return p;
}

static void until_read(const struct pass *p) {
  for (int i = 0; i < 60000 && atomic_load(&p->state) != PASS_READ; i++)
    usleep(500);
  assert_int_equal(atomic_load(&p->state), PASS_READ);
}

static void test_reads(void **state) {
  struct fixture *f = *state;
  struct listed l = list(f, 3, NUMBERS);
  ((struct snapshot_entry *)((char *)l.head + SNAPSHOT_ENTRIES_OFFSET))[1].address = 4096;
  struct pass *p = take(f, &l, f->pid);
  until_read(p);
  assert_true(p->at == 3 && !p->error && !p->refused && !p->gone && p->read_ns);
  assert_true(p->results[0].stats.count == NUMBERS && p->results[0].stats.max == 4 && p->results[0].error == 0);
  assert_true(p->results[1].error == EFAULT && p->results[1].stats.count == 0);
  assert_memory_equal(area_results(l.area), p->results, 3 * sizeof *p->results);
  assert_true(l.head->done == 3 && l.head->finished == 1 && l.head->read_ns == p->read_ns && !l.head->refused &&
              !l.head->stored);
  reader_let_go(f->reader, p);
  unlist(&l);
}

static void test_many_have_turns(void **state) {
  struct fixture *f = *state;
  struct listed l[8];
  struct pass *p[8];
  for (int i = 0; i < 8; i++)
    l[i] = list(f, ENTRIES, NUMBERS), p[i] = take(f, &l[i], f->pid);
  for (int i = 0; i < 8; i++) {
    until_read(p[i]);
    assert_true(p[i]->at == ENTRIES && l[i].head->finished == 1 && p[i]->results[ENTRIES - 1].stats.count == NUMBERS);
    reader_let_go(f->reader, p[i]);
    unlist(&l[i]);
  }
}

static void test_let_go_while_it_is_read(void **state) {
  struct fixture *f = *state;
  for (int i = 0; i < 50; i++) {
    struct listed l = list(f, ENTRIES, NUMBERS);
    struct pass *p = take(f, &l, f->pid);
    usleep((unsigned)i * 20);
    reader_let_go(f->reader, p);
    unlist(&l); /* the reader has the area as long as it needs it */
  }
}

static void test_process_ends(void **state) {
  struct fixture *f = *state;
  struct listed l = list(f, ENTRIES, NUMBERS);
  struct pass *p = take(f, &l, f->pid);
  while (__atomic_load_n(&l.head->done, __ATOMIC_ACQUIRE) < 2)
    usleep(50);
  kill_it(f);
  until_read(p);
  assert_true(p->at >= 2 && p->at < ENTRIES && p->gone && !p->refused && l.head->finished == 0);
  reader_let_go(f->reader, p);
  p = take(f, &l, getpid()); /* the number is another's by now: nothing of it is used */
  until_read(p);
  assert_true(p->gone && l.head->finished == 0);
  reader_let_go(f->reader, p);
  unlist(&l);
}

static void test_not_to_be_read(void **state) {
  struct fixture *f = *state;
  struct listed l = list(f, 3, NUMBERS);
  struct pass *p = take(f, &l, 0);
  until_read(p);
  assert_true(p->refused == EPERM && l.head->refused == EPERM && p->at == 0 && l.head->done == 0 && l.head->finished == 0);
  p->own = true; /* and the process does it itself */
  p->refused = 0;
  l.head->flags = SNAPSHOT_OWN;
  area_results(l.area)[2].stats.count = 5;
  l.head->done = 3;
  l.head->finished = 1;
  reader_take(f->reader, p);
  until_read(p);
  assert_true(p->at == 3 && p->results[2].stats.count == 5 && p->head.flags & SNAPSHOT_OWN);
  reader_let_go(f->reader, p);
  unlist(&l);
}

static void test_goes_on_where_another_stopped(void **state) {
  struct fixture *f = *state;
  struct listed l = list(f, 4, 10);
  l.head->done = 2;
  area_results(l.area)[1].stats.count = 77;
  struct pass *p = take(f, &l, f->pid);
  until_read(p);
  assert_true(p->at == 4 && p->results[1].stats.count == 77 && p->results[2].stats.count == 10 && l.head->finished == 1);
  reader_let_go(f->reader, p);
  unlist(&l);
}

static void test_stops(void **state) {
  struct fixture *f = *state;
  struct listed l = list(f, ENTRIES, NUMBERS), other = list(f, ENTRIES, NUMBERS);
  struct pass *p = take(f, &l, f->pid), *q = take(f, &other, f->pid);
  while (__atomic_load_n(&l.head->done, __ATOMIC_ACQUIRE) < 2)
    usleep(50);
  assert_true(reader_stop(f->reader));
  until_read(p);
  until_read(q);
  assert_true(p->at < ENTRIES && q->at < ENTRIES && !p->gone && l.head->finished == 0);
  reader_let_go(f->reader, p);
  reader_let_go(f->reader, q);
  unlist(&l);
  unlist(&other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_reads),        TEST(test_many_have_turns), TEST(test_let_go_while_it_is_read),
      TEST(test_process_ends), TEST(test_not_to_be_read),  TEST(test_goes_on_where_another_stopped),
      TEST(test_stops)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
