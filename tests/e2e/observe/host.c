/* A host that loads libpython at run time: host LIBRARY local|global TIMES SCRIPT. Starts and ends the interpreter TIMES times. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *find(void *library, const char *name) {
  void *symbol = dlsym(library, name);
  if (!symbol) {
    fprintf(stderr, "no %s\n", name);
    exit(3);
  }
  return symbol;
}

int main(int argc, char **argv) {
  if (argc != 5)
    return 2;
  void *library = dlopen(argv[1], RTLD_NOW | (strcmp(argv[2], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  void (*initialize)(void) = (void (*)(void))find(library, "Py_Initialize");
  int (*finalize)(void) = (int (*)(void))find(library, "Py_FinalizeEx");
  int (*run)(const char *, void *) = (int (*)(const char *, void *))find(library, "PyRun_SimpleStringFlags");
  int failed = 0;
  for (int i = 0; i < atoi(argv[3]); i++) {
    initialize();
    failed |= run(argv[4], NULL);
    failed |= finalize();
  }
  return failed ? 1 : 0;
}
