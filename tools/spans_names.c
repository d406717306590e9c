/* Names and ids of spans as text (spans.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spans.h"
#include "spans_internal.h"

struct name {
  char *text; /* NULL: not asked for, or not there */
  size_t len;
  bool known;
};

/* Numbers are given in order from 1 on, so a plain array is small; one beyond NAMES_DIRECT is looked up each time. */
#define NAMES_DIRECT (1u << 20)

struct spans_names {
  sqlite3 *db;
  sqlite3_stmt *find;
  struct name *list;
  uint32_t room;
  struct name last; /* beyond NAMES_DIRECT */
};

struct spans_names *spans_names_new(sqlite3 *db) {
  struct spans_names *names = calloc(1, sizeof *names);
  if (names)
    names->db = db;
  return names;
}

static struct name *place_of(struct spans_names *names, uint32_t name) {
  if (name >= NAMES_DIRECT) {
    free(names->last.text);
    names->last = (struct name){0};
    return &names->last;
  }
  if (name >= names->room) {
    uint32_t room = names->room ? names->room : 256;
    while (room <= name)
      room *= 2;
    struct name *list = reallocarray(names->list, room, sizeof *list);
    if (!list)
      return NULL;
    memset(list + names->room, 0, (room - names->room) * sizeof *list);
    names->list = list;
    names->room = room;
  }
  return &names->list[name];
}

static void read_name(struct spans_names *names, uint32_t name, struct name *place) {
  if (!names->find && sqlite3_prepare_v3(names->db, "SELECT text FROM names WHERE name = ?1", -1, SQLITE_PREPARE_PERSISTENT,
                                         &names->find, NULL) != SQLITE_OK)
    return;
  if (sqlite3_bind_int64(names->find, 1, name) == SQLITE_OK && sqlite3_step(names->find) == SQLITE_ROW) {
    const void *text = sqlite3_column_text(names->find, 0);
    size_t len = (size_t)sqlite3_column_bytes(names->find, 0);
    place->text = text ? malloc(len + 1) : NULL;
    if (place->text) {
      memcpy(place->text, text, len);
      place->text[len] = 0;
      place->len = len;
      place->known = true;
    }
  }
  (void)sqlite3_reset(names->find); /* a name that can't be read is none */
}

const char *spans_name(struct spans_names *names, uint32_t name, size_t *len) {
  struct name *place = name ? place_of(names, name) : NULL;
  if (place && !place->known)
    read_name(names, name, place);
  if (!place || !place->text)
    return NULL;
  if (len)
    *len = place->len;
  return place->text;
}

void spans_names_free(struct spans_names *names) {
  if (!names)
    return;
  for (uint32_t i = 0; i < names->room; i++)
    free(names->list[i].text);
  free(names->last.text);
  free(names->list);
  (void)sqlite3_finalize(names->find); /* tells of the last run's error again */
  free(names);
}

int spans_name_find(sqlite3 *db, const char *text, size_t len, uint32_t *out) {
  sqlite3_stmt *s = NULL;
  int rc = sqlite3_prepare_v2(db, "SELECT name FROM names WHERE text = ?1", -1, &s, NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_bind_text64(s, 1, text, len, SQLITE_STATIC, SQLITE_UTF8);
  if (rc == SQLITE_OK)
    rc = sqlite3_step(s);
  int64_t name = rc == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
  (void)sqlite3_finalize(s); /* rc is known */
  if (name > 0 && name <= UINT32_MAX) {
    *out = (uint32_t)name;
    return 0;
  }
  return rc == SQLITE_ROW || rc == SQLITE_DONE ? -ENOENT : spans_errno(rc);
}

static void hex16(uint64_t v, char *out) {
  for (int i = 15; i >= 0; i--, v >>= 4)
    out[i] = "0123456789abcdef"[v & 15];
}

void spans_id_text(uint64_t prefix, uint64_t number, char out[33]) {
  hex16(prefix, out);
  hex16(number, out + 16);
  out[32] = 0;
}

static bool hex16_parse(const char *text, uint64_t *out) {
  uint64_t v = 0;
  for (int i = 0; i < 16; i++) {
    char c = text[i];
    unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                            : 16;
    if (digit == 16)
      return false;
    v = v << 4 | digit;
  }
  *out = v;
  return true;
}

bool spans_id_parse(const char *text, size_t len, uint64_t *prefix, uint64_t *number) {
  uint64_t a, b;
  if (!text || len != 32 || !hex16_parse(text, &a) || !hex16_parse(text + 16, &b))
    return false;
  *prefix = a;
  *number = b;
  return true;
}
