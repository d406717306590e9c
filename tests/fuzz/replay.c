/* Gives each file of a folder to a fuzz target, and every beginning of it at some lengths: fuzz_NAME FOLDER. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

/* From malloc and just as long, so that a sanitizer sees a read behind the end. */
static void give(const uint8_t *data, size_t len) {
  uint8_t *exact = malloc(len ? len : 1);
  if (!exact)
    abort();
  memcpy(exact, data, len);
  (void)LLVMFuzzerTestOneInput(exact, len);
  free(exact);
}

static int replay(const char *folder, const char *name) {
  static uint8_t data[1 << 16];
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "rb");
  if (!f)
    return -1;
  size_t len = fread(data, 1, sizeof data, f);
  fclose(f);
  give(data, len);
  for (size_t part = 1; part < 8; part++)
    give(data, len * part / 8);
  return 0;
}

int main(int argc, char **argv) {
  DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
  if (!folder)
    return 2;
  unsigned n = 0;
  for (struct dirent *entry; (entry = readdir(folder));)
    if (entry->d_name[0] != '.' && replay(argv[1], entry->d_name) == 0)
      n++;
  closedir(folder);
  printf("%u inputs\n", n);
  return n ? 0 : 1;
}
