/* Old symbol versions for what we take from libc, so that one build loads on systems back to glibc 2.17.
 *
 * A version that the target's libc lacks kills every process that is preloaded, /bin/true included: the loader ignores a missing
 * preload file, not this. So each file of the agent that uses one of these functions includes this header after the system's; the
 * library's list of imports is checked when it is built.
 *
 * What glibc 2.34 moved from libdl and libpthread into libc is weak here: on older systems it comes from those libraries if the
 * process has them, as every CPython does. Not pinned for machines other than x86-64 and AArch64, where nothing older exists.
 */
#ifndef CIRRON_GLIBC_H
#define CIRRON_GLIBC_H

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define GLIBC_OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define GLIBC_OLDEST "GLIBC_2.17"
#endif

#ifdef GLIBC_OLDEST
#define GLIBC_PIN(name)                                                                                                        \
  __asm__(".symver " #name ", " #name "@" GLIBC_OLDEST);                                                                       \
  extern __typeof(name) name __attribute__((weak))

GLIBC_PIN(dlsym);
GLIBC_PIN(dlopen);
GLIBC_PIN(dlclose);
GLIBC_PIN(dlerror);
GLIBC_PIN(dladdr);
GLIBC_PIN(pthread_create);
GLIBC_PIN(pthread_detach);
GLIBC_PIN(pthread_getspecific);
GLIBC_PIN(pthread_join);
GLIBC_PIN(pthread_key_create);
GLIBC_PIN(pthread_key_delete);
GLIBC_PIN(pthread_kill);
GLIBC_PIN(pthread_mutex_trylock);
GLIBC_PIN(pthread_once);
GLIBC_PIN(pthread_setspecific);
GLIBC_PIN(pthread_sigmask);
#endif

/* These came into libc later than the kernel's calls they stand for. */
static inline int glibc_fstat(int fd, struct stat *out) {
  return (int)syscall(SYS_fstat, fd, out);
}
#define fstat glibc_fstat
/* From glibc 2.38 on the header turns this into a symbol of its own, for numbers written 0b1. */
extern long glibc_strtol(const char *text, char **end, int base) __asm__("strtol");
#define strtol glibc_strtol
#define memfd_create(name, flags) ((int)syscall(SYS_memfd_create, (name), (unsigned)(flags)))
#define getrandom(buffer, size, flags) syscall(SYS_getrandom, (buffer), (size_t)(size), (unsigned)(flags))
#define gettid() ((pid_t)syscall(SYS_gettid))

#endif
