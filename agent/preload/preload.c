/* libcirron_agent.so: what every program under the preload pays for.
 *
 * A job's preload is inherited by every shell, compiler and tool it starts, so this object is next to nothing: no start files, two
 * small pages, one look at a weak symbol. Only where there is a CPython does it load the agent proper, libcirron_core.so, which lies
 * beside it. An interpreter that a host loads later is met in setlocale, which every CPython calls while it starts (attach.c).
 *
 * Threads: the constructor runs alone; setlocale may be called by any thread.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../glibc.h"
#include "symbol.h"

#define CORE "libcirron_core.so"

extern const char *Py_GetVersion(void) __attribute__((weak));

static void (*_Atomic core_setlocale)(const void *caller); /* the core's; NULL while it is not loaded */
static atomic_flag loading = ATOMIC_FLAG_INIT;

static bool is_on(const char *text, bool fallback) {
  char first = text ? *text | 0x20 : 0;
  return !text || !*text ? fallback : first == '1' || first == 't' || first == 'y' || (first == 'o' && (text[1] | 0x20) == 'n');
}

/* Another libc than glibc, or a file that is missing. What this needs is looked up here: every import is paid for by every program. */
static void core_missing(void) {
  char why[256];
  size_t n = 0;
  for (const char *text = dlerror(); text && text[n] && n < sizeof why - 1; n++) /* good until the next question */
    why[n] = (char)((unsigned char)text[n] < 0x20 ? '?' : text[n]);              /* one line, whatever a path holds */
  why[n] = '\0';
  char *(*env)(const char *) = (char *(*)(const char *))dlsym(RTLD_DEFAULT, "getenv");
  int (*print)(int, const char *, ...) = (int (*)(int, const char *, ...))dlsym(RTLD_DEFAULT, "dprintf");
  if (env && print && is_on(env("CIRRON_ENABLED"), true) && is_on(env("CIRRON_DEBUG"), false))
    (void)print(2, "cirron: nothing is recorded: %s\n", why);
}

/* Beside this very file: the preload may be given by a relative path, and the core has no name in the loader's search path. */
static void core_load(void) {
  static const char us;
  char path[4096];
  Dl_info info;
  if (atomic_flag_test_and_set(&loading) || !dladdr || !dlopen || !dlsym || !dladdr(&us, &info) || !info.dli_fname)
    return;
  const char *slash = strrchr(info.dli_fname, '/');
  size_t folder = slash ? (size_t)(slash + 1 - info.dli_fname) : 0;
  if (folder + sizeof CORE > sizeof path)
    return;
  memcpy(path, info.dli_fname, folder);
  memcpy(path + folder, CORE, sizeof CORE);
  void *core = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (core)
    atomic_store(&core_setlocale, (void (*)(const void *))dlsym(core, "cirron_core_setlocale"));
  else
    core_missing(); /* takes the error away: the program's own next question is not to get our answer */
}

__attribute__((constructor)) static void preload_begin(void) {
  if (Py_GetVersion)
    core_load();
}

/* Is the address in a libpython? */
static bool in_libpython(const void *address) {
  Dl_info info;
  if (!dladdr || !dladdr(address, &info) || !info.dli_fname)
    return false;
  const char *base = strrchr(info.dli_fname, '/');
  return strstr(base ? base : info.dli_fname, "python") != NULL;
}

static void seen(const void *caller) {
  static _Atomic(const void *) strangers[8]; /* places that called and are in no libpython */
  _Atomic(const void *) *stranger = &strangers[((uintptr_t)caller >> 4) % 8];
  if (!Py_GetVersion && atomic_load_explicit(stranger, memory_order_relaxed) == caller)
    return;
  if (!Py_GetVersion && !in_libpython(caller)) {
    atomic_store_explicit(stranger, caller, memory_order_relaxed);
    return;
  }
  core_load();
  void (*core)(const void *) = atomic_load(&core_setlocale);
  if (core)
    core(caller);
}

char *setlocale(int category, const char *locale);
__attribute__((visibility("default"))) char *setlocale(int category, const char *locale) {
  static _Atomic(void *) original;
  void *found = atomic_load_explicit(&original, memory_order_relaxed);
  int error = errno;
  if (!found) {
    found = symbol_next("setlocale");
    atomic_store_explicit(&original, found, memory_order_relaxed);
  }
  seen(__builtin_return_address(0));
  errno = error;
  return found ? ((char *(*)(int, const char *))found)(category, locale) : NULL;
}
