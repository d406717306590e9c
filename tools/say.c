#include "say.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

void say(const char *format, ...) {
  char *line = NULL;
  struct buf shown = {0};
  va_list args;
  va_start(args, format);
  int len = vasprintf(&line, format, args);
  va_end(args);
  if (len < 0)
    return;
  text_show(&shown, line, (size_t)len, strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
  fprintf(stderr, "cirron-query: %s\n", buf_text(&shown));
  buf_fini(&shown);
  free(line);
}
