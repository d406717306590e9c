/* dlsym where there is one; else the loaded objects' own symbol tables, read as the loader does. */
#include "symbol.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../glibc.h"

struct object {
  const ElfW(Sym) * symbols;
  const char *strings;
  const uint32_t *hash; /* DT_GNU_HASH */
  const ElfW(Half) * versions;
};

struct search {
  const char *name;
  uint32_t hash;
  void *found;
};

static uint32_t gnu_hash(const char *name) {
  uint32_t h = 5381;
  for (const unsigned char *c = (const unsigned char *)name; *c; c++)
    h = h * 33 + *c;
  return h;
}

/* glibc relocates the dynamic section in place, but not that of the vDSO. */
static const void *dynamic_address(const struct dl_phdr_info *info, const ElfW(Dyn) * entry) {
  ElfW(Addr) address = entry->d_un.d_ptr;
  return (const void *)(address < info->dlpi_addr ? address + info->dlpi_addr : address);
}

static bool object_read(const struct dl_phdr_info *info, struct object *out) {
  memset(out, 0, sizeof *out);
  for (size_t i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
      continue;
    for (const ElfW(Dyn) *d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; d++) {
      if (d->d_tag == DT_SYMTAB)
        out->symbols = dynamic_address(info, d);
      else if (d->d_tag == DT_STRTAB)
        out->strings = dynamic_address(info, d);
      else if (d->d_tag == DT_GNU_HASH)
        out->hash = dynamic_address(info, d);
      else if (d->d_tag == DT_VERSYM)
        out->versions = dynamic_address(info, d);
    }
  }
  return out->symbols && out->strings && out->hash;
}

/* A definition, and not one of an old version that is kept for old programs (hidden). */
static bool symbol_fits(const struct object *object, uint32_t i, const char *name) {
  const ElfW(Sym) *symbol = &object->symbols[i];
  if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
    return false;
  if (object->versions && object->versions[i] & 0x8000)
    return false;
  return strcmp(object->strings + symbol->st_name, name) == 0;
}

/* Header: buckets, first symbol, words of the Bloom filter, shift; then filter, buckets, chains. */
static const ElfW(Sym) * object_find(const struct object *object, const struct search *search) {
  uint32_t buckets = object->hash[0], first = object->hash[1], words = object->hash[2];
  const uint32_t *bucket = object->hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chain = bucket + buckets;
  if (buckets == 0)
    return NULL;
  for (uint32_t i = bucket[search->hash % buckets]; i >= first && i != 0; i++) {
    uint32_t hash = chain[i - first];
    if ((hash | 1) == (search->hash | 1) && symbol_fits(object, i, search->name))
      return &object->symbols[i];
    if (hash & 1)
      return NULL;
  }
  return NULL;
}

static int object_visit(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  struct search *search = data;
  struct object object;
  if (!object_read(info, &object))
    return 0;
  const ElfW(Sym) *symbol = object_find(&object, search);
  static const char us; /* any address inside our own object */
  if (!symbol)
    return 0;
  for (size_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && (uintptr_t)&us - info->dlpi_addr - part->p_vaddr < part->p_memsz)
      return 0;
  }
  search->found = (void *)(info->dlpi_addr + symbol->st_value);
  return 1;
}

void *symbol_search(const char *name) {
  struct search search = {.name = name, .hash = gnu_hash(name)};
  (void)dl_iterate_phdr(object_visit, &search);
  return search.found;
}

void *symbol_next(const char *name) {
  return dlsym ? dlsym(RTLD_NEXT, name) : symbol_search(name);
}
