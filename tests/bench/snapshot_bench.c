// links: collectord/ahead.c collectord/reader.c collectord/pass.c collectord/area.c collectord/blob.c collectord/process.c collectord/clock.c collectord/mapping.c collectord/utf8.c proto/safetensors.c proto/tensor_read.c proto/tensor_scalar.c proto/tensor_stats.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
/* Reading another process's tensors as collectord does, against what it could cost at least; in turns, the best of each.
 *
 *   snapshot_bench             the parameters of ResNet-50: bare process_vm_readv of them, and a sum over the same memory in process
 *   snapshot_bench FOLDER MIB  as many MiB of tensors into a file in FOLDER, against write and fsync of the same bytes
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectord/clock.h"
#include "collectord/process.h"
#include "collectord/reader.h"

#define ROUNDS 9
#define MAX_TENSORS 512u
#define TEXT (1u << 16)
#define PREFIX 77u
#define CHUNK (1u << 20)

static struct {
  int64_t numbers[MAX_TENSORS];
  float *data[MAX_TENSORS];
  unsigned count;
  size_t bytes;
} model;

static struct snapshot_area *head;
static int area_fd;

static void add(int64_t numbers) {
  size_t bytes = (size_t)numbers * sizeof(float);
  float *data = malloc(bytes);
  if (!data || model.count == MAX_TENSORS)
    abort();
  uint32_t x = 12345 + model.count;
  for (int64_t i = 0; i < numbers; i++) {
    x = x * 1664525 + 1013904223;
    data[i] = (float)(int32_t)x * 0x1p-36f;
  }
  model.data[model.count] = data;
  model.numbers[model.count++] = numbers;
  model.bytes += bytes;
}

static void conv(int64_t in, int64_t out, int64_t side) {
  add(in * out * side * side);
  add(out); /* of the normalisation after it */
  add(out);
}

static void resnet50(void) {
  static const int blocks[] = {3, 4, 6, 3};
  int64_t in = 64;
  conv(3, 64, 7);
  for (int stage = 0; stage < 4; stage++) {
    int64_t width = 64 << stage;
    for (int block = 0; block < blocks[stage]; block++) {
      conv(in, width, 1);
      conv(width, width, 3);
      conv(width, 4 * width, 1);
      if (!block)
        conv(in, 4 * width, 1);
      in = 4 * width;
    }
  }
  add(2048 * 1000);
  add(1000);
}

static void list(unsigned flags) {
  area_fd = memfd_create("cirron-bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  size_t bytes = SNAPSHOT_BYTES(MAX_TENSORS, TEXT);
  if (area_fd < 0 || ftruncate(area_fd, (off_t)bytes) != 0 || fcntl(area_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    abort();
  head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, area_fd, 0);
  if (head == MAP_FAILED)
    abort();
  *head = (struct snapshot_area){.magic = SNAPSHOT_MAGIC,
                                 .abi = SNAPSHOT_ABI,
                                 .entries = MAX_TENSORS,
                                 .bytes = bytes,
                                 .text_bytes = TEXT,
                                 .session = PREFIX,
                                 .count = model.count,
                                 .reason = SNAPSHOT_EPOCH,
                                 .flags = flags};
  struct snapshot_entry *entries = (void *)((char *)head + SNAPSHOT_ENTRIES_OFFSET);
  char *text = (char *)head + SNAPSHOT_TEXT_OFFSET(MAX_TENSORS);
  uint32_t at = 8;
  for (unsigned i = 0; i < model.count; i++) {
    memcpy(text + at, &model.numbers[i], sizeof model.numbers[i]);
    uint32_t len = (uint32_t)sprintf(text + at + 12, "layer.%u", i);
    memcpy(text + at + 8, &len, sizeof len);
    entries[i] = (struct snapshot_entry){.address = (uintptr_t)model.data[i],
                                         .name = at + 8,
                                         .shape = at,
                                         .strides = SNAPSHOT_CONTIGUOUS,
                                         .dtype = TENSOR_F32,
                                         .ndim = 1};
    at += (12 + len + 7) / 8 * 8;
  }
}

/* The process that has the tensors: this one's memory, once more. */
static pid_t other(void) {
  pid_t pid = fork();
  if (pid == 0)
    for (;;)
      pause();
  return pid;
}

static uint64_t bare(pid_t pid) {
  static char buffer[CHUNK];
  uint64_t from = clock_monotonic_ns();
  for (unsigned i = 0; i < model.count; i++)
    for (size_t at = 0, bytes = (size_t)model.numbers[i] * 4, n; at < bytes; at += n) {
      n = bytes - at < CHUNK ? bytes - at : CHUNK;
      struct iovec local = {buffer, n}, remote = {(char *)model.data[i] + at, n};
      if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)n)
        abort();
    }
  return clock_monotonic_ns() - from;
}

static uint64_t sum(void) {
  static volatile uint64_t kept __attribute__((unused)); /* so that it is computed */
  uint64_t from = clock_monotonic_ns(), total = 0;
  for (unsigned i = 0; i < model.count; i++) {
    const uint32_t *p = (const uint32_t *)model.data[i];
    for (int64_t k = 0; k < model.numbers[i]; k++)
      total += p[k];
  }
  kept = total;
  return clock_monotonic_ns() - from;
}

static struct pass *take(struct reader *reader, struct area *area, pid_t pid, int pidfd, int folder, uint64_t *ns) {
  static uint64_t number;
  struct pass *p;
  head->number = ++number;
  head->done = 0;
  uint64_t from = clock_monotonic_ns();
  if (pass_new(area, number, PREFIX, pid, pidfd, folder, &p) != 0)
    abort();
  reader_take(reader, p);
  while (atomic_load(&p->state) != PASS_READ)
    usleep(50);
  *ns = clock_monotonic_ns() - from;
  if (p->at != model.count || p->error || p->refused || p->blob_error || p->results[0].error)
    abort();
  return p;
}

static uint64_t plain_file(int folder) {
  uint64_t from = clock_monotonic_ns();
  int fd = openat(folder, "plain", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (unsigned i = 0; i < model.count; i++)
    for (size_t at = 0, bytes = (size_t)model.numbers[i] * 4; at < bytes; at += CHUNK)
      if (write(fd, (char *)model.data[i] + at, bytes - at < CHUNK ? bytes - at : CHUNK) <= 0)
        abort();
  if (fsync(fd) != 0)
    abort();
  close(fd);
  uint64_t ns = clock_monotonic_ns() - from;
  (void)unlinkat(folder, "plain", 0); /* a bench's own file */
  return ns;
}

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static void statistics(struct reader *reader, struct area *area, pid_t pid, int pidfd) {
  uint64_t whole = UINT64_MAX, read = UINT64_MAX, floor = UINT64_MAX, in_process = UINT64_MAX, ns;
  for (int i = 0; i < ROUNDS; i++) {
    floor = least(floor, bare(pid));
    in_process = least(in_process, sum());
    struct pass *p = take(reader, area, pid, pidfd, -1, &ns);
    whole = least(whole, ns);
    read = least(read, p->read_ns);
    pass_free(p);
  }
  printf("%u tensors, %.1f MB: read and computed in %.2f ms (from request to result %.2f ms)\n", model.count,
         (double)model.bytes / 1e6, (double)read / 1e6, (double)whole / 1e6);
  printf("bare process_vm_readv %.2f ms: %.2f times that\n", (double)floor / 1e6, (double)read / (double)floor);
  printf("a sum in process      %.2f ms: %.2f times that\n", (double)in_process / 1e6, (double)read / (double)in_process);
}

static void files(struct reader *reader, struct area *area, pid_t pid, int pidfd, const char *path) {
  uint64_t file = UINT64_MAX, plain = UINT64_MAX, ns;
  for (int i = 0; i < 3; i++) {
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    plain = least(plain, plain_file(folder));
    pass_free(take(reader, area, pid, pidfd, dup(folder), &ns));
    file = least(file, ns);
    (void)unlinkat(folder, "weights.safetensors", 0); /* a bench's own file */
    close(folder);
  }
  double mb = (double)model.bytes / 1e6;
  printf("%.0f MB with statistics into a file: %.0f MB/s; write and fsync of the same bytes: %.0f MB/s; %.0f %%\n", mb,
         mb * 1e9 / (double)file, mb * 1e9 / (double)plain, 100 * (double)plain / (double)file);
}

int main(int argc, char **argv) {
  if (argc > 2)
    for (int left = atoi(argv[2]); left > 0; left -= 4)
      add(1 << 20);
  else
    resnet50();
  list(argc > 2 ? SNAPSHOT_BLOBS : 0);
  pid_t pid = other();
  struct area *area;
  struct reader *reader;
  int pidfd = process_open(pid);
  if (pidfd < 0 || area_open(area_fd, head->bytes, PREFIX, &area) != 0 || reader_new(&reader) != 0)
    abort();
  if (argc > 2)
    files(reader, area, pid, pidfd, argv[1]);
  else
    statistics(reader, area, pid, pidfd);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  return reader_stop(reader) ? 0 : 1;
}
