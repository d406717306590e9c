/* A traced process's side of the shared memory, for tests of collectord: makes a segment and rings, and writes into them, also what
 * no agent would write. Header only; each test uses a part of it. */
#ifndef CIRRON_TEST_RING_MAKER_H
#define CIRRON_TEST_RING_MAKER_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/ring_abi.h"

#define MAKER __attribute__((unused)) static

struct ring_maker {
  int fd;
  struct ring_header *header;
  struct ring_open *open;
  uint8_t *cells;
  uint32_t count;
};

MAKER int maker_memfd(size_t bytes, unsigned seals, void **memory) {
  int fd = memfd_create("cirron-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)
    abort();
  *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (*memory == MAP_FAILED)
    abort();
  return fd;
}

MAKER struct ring_maker maker_ring(uint64_t session, uint32_t ring_no, uint32_t cells) {
  struct ring_maker m = {.count = cells};
  void *memory;
  m.fd = maker_memfd(RING_BYTES(cells), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, &memory);
  m.header = memory;
  m.open = (void *)((uint8_t *)memory + RING_OPEN_OFFSET);
  m.cells = (uint8_t *)memory + RING_CELLS_OFFSET;
  *m.header = (struct ring_header){.magic = RING_MAGIC,
                                   .abi_major = RING_ABI_MAJOR,
                                   .cells = cells,
                                   .open_slots = RING_OPEN_SLOTS,
                                   .ring_no = ring_no,
                                   .session = session};
  return m;
}

MAKER void maker_ring_free(struct ring_maker *m) {
  munmap(m->header, RING_BYTES(m->count));
  close(m->fd);
}

MAKER void maker_cell(struct ring_maker *m, uint64_t position, const void *cell) {
  memcpy(m->cells + (position & (m->count - 1)) * RING_CELL, cell, RING_CELL);
}

/* Appends a record and its texts, as the agent does. */
MAKER void maker_put(struct ring_maker *m, const void *cell, const char *a, const char *b) {
  uint64_t at = m->header->head;
  uint8_t record[RING_CELL];
  memcpy(record, cell, RING_CELL);
  unsigned n = 0;
  const char *texts[2] = {a ? a : "", b ? b : ""};
  for (int i = 0; i < 2; i++) {
    for (const char *text = texts[i]; *text;) {
      struct ring_text t = {.type = RING_TEXT, .used = (uint16_t)strnlen(text, RING_TEXT_BYTES)};
      memcpy(t.text, text, t.used);
      maker_cell(m, at + ++n, &t);
      text += t.used;
    }
    if (i == 0 && record[0] == RING_MARK)
      record[offsetof(struct ring_mark, value_cells)] = (uint8_t)n;
  }
  record[offsetof(struct ring_span, text_cells)] = record[0] == RING_SPAN || record[0] == RING_MARK ? (uint8_t)n : record[3];
  maker_cell(m, at, record);
  m->header->emitted_spans += record[0] == RING_SPAN;
  m->header->emitted_marks += record[0] == RING_MARK;
  __atomic_store_n(&m->header->head, at + 1 + n, __ATOMIC_RELEASE);
}

MAKER struct ring_segment *maker_segment(uint64_t session, int *fd) {
  void *memory;
  *fd = maker_memfd(SEGMENT_BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, &memory);
  struct ring_segment *s = memory;
  *s = (struct ring_segment){
      .magic = SEGMENT_MAGIC, .abi_major = RING_ABI_MAJOR, .bytes = SEGMENT_BYTES, .session = session, .names_used = 4};
  return s;
}

/* A new name; its id. */
MAKER uint32_t maker_name(struct ring_segment *s, const char *text) {
  uint32_t at = s->names_used, len = (uint32_t)strlen(text);
  uint8_t *entry = (uint8_t *)s + SEGMENT_NAMES_OFFSET + at;
  memcpy(entry, &len, 4);
  memcpy(entry + 4, text, len);
  __atomic_store_n(&s->names_used, (at + 4 + len + 3) & ~3u, __ATOMIC_RELEASE);
  return at / 4;
}

#endif
