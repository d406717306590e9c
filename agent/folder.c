/* See folder.h. */
#include "folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "glibc.h"

int folder_make(const char *folder) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s", folder);
  for (char *p = path + 1;; p++) {
    char c = *p;
    if (c && c != '/')
      continue;
    *p = '\0';
    if (mkdir(path, 0777) != 0 && errno != EEXIST && errno != EISDIR && !(c && (errno == EROFS || errno == EACCES)))
      return -errno;
    *p = c;
    if (!c)
      return 0;
  }
}
