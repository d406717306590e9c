/* See cuda.h. */
#include "cuda.h"

#include <stddef.h>

#include "glibc.h"

/* Before cuInit the driver answers with an error. */
static int count(void *driver) {
  int (*get_count)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
  int n = 0;
  if (!get_count)
    (void)dlerror(); /* the program's own next question is not to get our answer */
  return get_count && get_count(&n) == 0 && n > 0 ? n : 0;
}

/* By its name, and not by a walk over what is loaded: the lock of that walk is not freed in the child of a fork. */
int cuda_devices(void) {
  void *driver = dlopen && dlsym && dlclose ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (!driver) {
    if (dlerror)
      (void)dlerror();
    return 0;
  }
  int n = count(driver);
  (void)dlclose(driver); /* our own count of it only */
  return n;
}
