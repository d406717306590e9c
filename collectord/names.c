#include "names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

#define ID_LIMIT (SEGMENT_NAMES_BYTES / 4)

void names_init(struct names *names, const struct ring_segment *segment, const struct store *store) {
  *names = (struct names){.segment = segment, .count = 1, .first_uncommitted = 1, .generation = store_generation(store)};
}

void names_fini(struct names *names) {
  for (uint32_t i = 1; i < names->count; i++)
    free(names->list[i].text);
  free(names->list);
  free(names->of_id);
  idmap_fini(&names->by_row);
  *names = (struct names){0};
}

static int append(struct names *names, char *text, uint32_t len, uint32_t row, bool committed, uint32_t *out) {
  if (names->count >= names->room) {
    uint32_t room = names->room ? names->room * 2 : 64;
    struct name *list = realloc(names->list, room * sizeof *list);
    if (!list)
      return -ENOMEM;
    names->list = list;
    names->room = room;
  }
  int err = idmap_put(&names->by_row, row, names->count);
  if (err)
    return err;
  names->list[names->count] = (struct name){.text = text, .len = len, .row = row, .committed = committed};
  *out = names->count++;
  return 0;
}

int names_adopt(struct names *names, uint32_t row, uint32_t *out) {
  if (!row || idmap_get(&names->by_row, row, out)) {
    if (!row)
      *out = 0;
    return 0;
  }
  return append(names, NULL, 0, row, true, out);
}

int names_text(struct names *names, struct store *store, const char *text, size_t len, uint32_t *out) {
  /* Rows of an undone transaction may be given to other texts: compare with rows of the present one only. */
  uint32_t row;
  int err = names_refresh(names, store);
  if (err || (err = store_name(store, text, len, &row)))
    return err;
  if (idmap_get(&names->by_row, row, out))
    return 0;
  char *copy = malloc(len ? len : 1);
  if (!copy)
    return -ENOMEM;
  memcpy(copy, text, len);
  err = append(names, copy, (uint32_t)len, row, false, out);
  if (err)
    free(copy);
  return err;
}

/* Copies the text of an id out of the segment. */
static int text_of(const struct ring_segment *segment, uint32_t id, char *text, uint32_t *len) {
  uint32_t used = __atomic_load_n(&segment->names_used, __ATOMIC_ACQUIRE);
  uint64_t at = (uint64_t)id * 4;
  if (used > SEGMENT_NAMES_BYTES)
    used = SEGMENT_NAMES_BYTES;
  if (at + 4 > used)
    return -EBADMSG;
  const uint8_t *entry = (const uint8_t *)segment + SEGMENT_NAMES_OFFSET + at;
  uint32_t n = *(const volatile uint32_t *)entry;
  if (n > NAME_MAX_BYTES || at + 4 + n > used)
    return -EBADMSG;
  memcpy(text, entry + 4, n);
  *len = n;
  return 0;
}

/* Room in of_id for an id below ID_LIMIT; most processes use low ones only. */
static int id_room(struct names *names, uint32_t id) {
  uint32_t room = names->id_room ? names->id_room : 512;
  while (room <= id)
    room *= 2;
  if (room == names->id_room)
    return 0;
  uint32_t *of_id = realloc(names->of_id, room * sizeof *of_id);
  if (!of_id)
    return -ENOMEM;
  memset(of_id + names->id_room, 0, (room - names->id_room) * sizeof *of_id);
  names->of_id = of_id;
  names->id_room = room;
  return 0;
}

int names_get(struct names *names, struct store *store, uint32_t id, uint32_t *out) {
  if (!id) {
    *out = 0;
    return 0;
  }
  if (!names->segment || id >= ID_LIMIT)
    return -EBADMSG;
  if (id < names->id_room && names->of_id[id]) {
    *out = names->of_id[id];
    return 0;
  }
  char text[NAME_MAX_BYTES];
  uint32_t len;
  int err = text_of(names->segment, id, text, &len);
  if (!err && names->of_segment_bytes + len > SEGMENT_NAMES_BYTES)
    err = -EBADMSG; /* entries that overlap: a MiB would become a thousand */
  if (err || (err = id_room(names, id)) || (err = names_text(names, store, text, len, out)))
    return err;
  names->of_id[id] = *out;
  names->of_segment_bytes += len;
  return 0;
}

int names_refresh(struct names *names, struct store *store) {
  unsigned generation = store_generation(store);
  if (generation == names->generation)
    return 0;
  for (uint32_t i = names->first_uncommitted; i < names->count; i++)
    if (!names->list[i].committed)
      idmap_remove(&names->by_row, names->list[i].row);
  for (uint32_t i = names->first_uncommitted; i < names->count; i++) {
    struct name *n = &names->list[i];
    if (n->committed)
      continue;
    int err = store_name(store, n->text, n->len, &n->row);
    if (err || (err = idmap_put(&names->by_row, n->row, i)))
      return err; /* the generation is still the old one: all is asked for again */
  }
  names->generation = generation;
  return 0;
}

void names_committed(struct names *names) {
  for (uint32_t i = names->first_uncommitted; i < names->count; i++) {
    struct name *n = &names->list[i];
    n->committed = true;
    free(n->text);
    n->text = NULL;
  }
  names->first_uncommitted = names->count;
}
