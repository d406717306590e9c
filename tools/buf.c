#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *memory) {
  if (!memory) {
    fputs("cirron-query: out of memory\n", stderr);
    exit(1);
  }
  return memory;
}

void *buf_alloc(size_t size) {
  return checked(calloc(1, size ? size : 1));
}

void *buf_realloc(void *memory, size_t size) {
  return checked(realloc(memory, size ? size : 1));
}

char *buf_strdup(const char *text) {
  return checked(strdup(text));
}

static void reserve(struct buf *buf, size_t more) {
  if (buf->cap - buf->len > more)
    return;
  size_t cap = buf->cap ? buf->cap : 64;
  while (cap - buf->len <= more)
    cap *= 2;
  buf->data = buf_realloc(buf->data, cap);
  buf->cap = cap;
}

void buf_add(struct buf *buf, const char *text, size_t len) {
  reserve(buf, len);
  if (len)
    memcpy(buf->data + buf->len, text, len);
  buf->len += len;
  buf->data[buf->len] = 0;
}

void buf_puts(struct buf *buf, const char *text) {
  buf_add(buf, text, strlen(text));
}

void buf_putc(struct buf *buf, char c) {
  buf_add(buf, &c, 1);
}

void buf_printf(struct buf *buf, const char *format, ...) {
  va_list args;
  int need;
  for (size_t room = 64;; room = (size_t)need + 1) { /* most are short: formatted once */
    reserve(buf, room);
    va_start(args, format);
    need = vsnprintf(buf->data + buf->len, buf->cap - buf->len, format, args);
    va_end(args);
    if (need < 0) {
      buf->data[buf->len] = 0;
      return;
    }
    if ((size_t)need < buf->cap - buf->len)
      break;
  }
  buf->len += (size_t)need;
}

void buf_clear(struct buf *buf) {
  buf->len = 0;
  if (buf->data)
    buf->data[0] = 0;
}

void buf_fini(struct buf *buf) {
  free(buf->data);
  *buf = (struct buf){0};
}

const char *buf_text(const struct buf *buf) {
  return buf->data ? buf->data : "";
}
