/* See cuda.h. */
#include "cuda.h"

#include <link.h>
#include <stdbool.h>
#include <string.h>

#include "glibc.h"

static bool is_driver(const char *path) {
  const char *slash = strrchr(path, '/');
  return strncmp(slash ? slash + 1 : path, "libcuda.so", strlen("libcuda.so")) == 0;
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg) {
  (void)size;
  if (!info->dlpi_name || !is_driver(info->dlpi_name))
    return 0;
  *(const char **)arg = info->dlpi_name;
  return 1;
}

/* Before cuInit the driver answers with an error. */
static int count(void *driver) {
  int (*get_count)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
  int n = 0;
  if (!get_count)
    (void)dlerror(); /* the program's own next question is not to get our answer */
  return get_count && get_count(&n) == 0 && n > 0 ? n : 0;
}

int cuda_devices(void) {
  const char *path = NULL;
  if (!dlopen || !dlsym || !dlclose || dl_iterate_phdr(visit, &path) == 0)
    return 0;
  void *driver = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) {
    (void)dlerror();
    return 0;
  }
  int n = count(driver);
  (void)dlclose(driver); /* our own count of it only */
  return n;
}
