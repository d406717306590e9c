/* See module_first.h. The loader's list is in the order of loading, so every copy finds the same one. */
#include "module_first.h"

#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "glibc.h"

struct candidate {
  size_t skip; /* so many before it have been looked at */
  char path[PATH_MAX];
};

/* Names that a file has to have to be imported as `cirron`, and that of the agent proper. */
static bool name_fits(const char *path) {
  static const char *const begins[] = {"cirron.", "__init__.", "libcirron_"};
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
    if (strncmp(base, begins[i], strlen(begins[i])) == 0)
      return true;
  return false;
}

/* The loader's lock is held here, so nothing may be asked of it; the name is copied and used afterwards. */
static int candidate_visit(struct dl_phdr_info *info, size_t size, void *arg) {
  struct candidate *c = arg;
  (void)size;
  if (!info->dlpi_name || !name_fits(info->dlpi_name) || strlen(info->dlpi_name) >= sizeof c->path)
    return 0;
  if (c->skip > 0) {
    c->skip--;
    return 0;
  }
  strcpy(c->path, info->dlpi_name);
  return 1;
}

/* The entry of that file, if it is a copy of this one. */
static void *entry_of(const char *path) {
  void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) {
    (void)dlerror(); /* the program's own next question is not to get our answer */
    return NULL;
  }
  void *entry = dlsym(library, "cirron_core_setlocale") ? dlsym(library, "PyInit_cirron") : NULL;
  if (!entry)
    (void)dlerror();
  (void)dlclose(library); /* our own count of it only */
  return entry;
}

/* By address: with RTLD_GLOBAL our own name for the entry means that of the first copy, too. */
static bool is_here(const void *entry) {
  static const char us;
  Dl_info here, there;
  return !dladdr(&us, &here) || !dladdr(entry, &there) || here.dli_fbase == there.dli_fbase;
}

PyObject *(*module_first(void))(void) {
  if (!dlopen || !dlsym || !dlclose || !dladdr)
    return NULL;
  struct candidate c;
  for (size_t looked = 0;; looked++) {
    c.skip = looked;
    if (dl_iterate_phdr(candidate_visit, &c) == 0)
      return NULL;
    void *entry = entry_of(c.path);
    if (entry)
      return is_here(entry) ? NULL : (PyObject * (*)(void)) entry;
  }
}
