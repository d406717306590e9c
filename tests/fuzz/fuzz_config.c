// links: collectord/config.c
/* Command lines and files of settings. The input: arguments, one a line, up to an empty line; then the file that --config names. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectord/config.h"
#include "tests/fuzz/fuzz.h"

static int file_of(const char *text, size_t len, char *path, size_t path_len) {
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, text, len) != (ssize_t)len)
    abort();
  snprintf(path, path_len, "/proc/self/fd/%d", fd);
  return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static struct config config;
  static char message[4096];
  char *text = malloc(len + 1), *argv[34] = {(char *)"collectord"}, path[40];
  if (!text)
    return 0;
  memcpy(text, data, len);
  text[len] = '\0';
  char *file = memmem(text, len, "\n\n", 2);
  int argc = 1, fd = -1;
  if (file) {
    *file = '\0';
    file += 2;
    fd = file_of(file, (size_t)(text + len - file), path, sizeof path);
    argv[argc++] = (char *)"--config";
    argv[argc++] = path;
  }
  for (char *save, *line = strtok_r(text, "\n", &save); line && argc < 33; line = strtok_r(NULL, "\n", &save))
    argv[argc++] = line;
  enum config_result r = config_parse(argc, argv, &config, message, sizeof message);
  if (strnlen(message, sizeof message) == sizeof message)
    abort();
  if (r == CONFIG_RUN && (!config.socket[0] || !config.db[0] || !config.max_sessions || !config.max_rings))
    abort();
  if (r == CONFIG_INVALID && strchr(message, '\n'))
    abort(); /* one line */
  if (fd >= 0)
    close(fd);
  free(text);
  return 0;
}
