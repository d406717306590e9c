/* See config_file.h. */
#include "config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "glibc.h"
#include "json.h"
#include "toml.h"
#include "yaml.h"

static const char *const names[] = {"cirron.yaml", "cirron.yml", "cirron.json"};

#ifndef O_PATH
#define O_PATH 010000000
#endif

/* Is there an ordinary file, whether or not it may be read? */
static bool is_file(const char *path) {
  struct stat st;
  int fd = open(path, O_PATH | O_CLOEXEC);
  if (fd < 0)
    return false;
  bool file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  close(fd);
  return file;
}

static bool in_folder(const char *folder, size_t len, char path[PATH_MAX]) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    int n = snprintf(path, PATH_MAX, "%.*s/%s", (int)len, folder, names[i]);
    if (n > 0 && n < PATH_MAX && is_file(path))
      return true;
  }
  return false;
}

int config_find(const char *start, char path[PATH_MAX]) {
  char folder[PATH_MAX];
  if (!realpath(start ? start : ".", folder))
    return -errno;
  size_t len = strlen(folder);
  if (is_file(folder))
    len = (size_t)(strrchr(folder, '/') - folder);
  if (len == 1) /* "/" */
    len = 0;
  while (!in_folder(folder, len, path)) {
    if (len == 0)
      return -ENOENT;
    while (folder[--len] != '/')
      ;
  }
  return 0;
}

static int complain(struct config_complaint *why, int error, const char *text) {
  *why = (struct config_complaint){0};
  (void)snprintf(why->text, sizeof why->text, "%s", text);
  return error;
}

/* One byte more than allowed, so that a longer one is seen. */
static int read_file(const char *path, char *out, size_t size, size_t *len) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r = 0;
  if (fd < 0)
    return -errno;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
    r = -ENOENT;
  for (ssize_t n = 1; r == 0 && n != 0 && *len < size;) {
    n = read(fd, out + *len, size - *len);
    if (n > 0)
      *len += (size_t)n;
    else if (n < 0 && errno != EINTR)
      r = -errno;
  }
  close(fd);
  return r;
}

static bool is_json(const char *path) {
  size_t len = strlen(path);
  return len >= 5 && strcmp(path + len - 5, ".json") == 0;
}

typedef int (*reader)(struct doc *doc, const char *text, size_t len);

/* 0 and a document, or a negative errno and *why. */
static int load(const char *path, reader read, struct doc **out, struct config_complaint *why) {
  size_t len = 0, size = DOC_BYTES_MAX + 1;
  char *text = malloc(size);
  struct doc *doc = doc_new();
  int r = text && doc ? read_file(path, text, size, &len) : -ENOMEM;
  if (r != 0) {
    (void)complain(why, r, r == -ENOENT ? "there is no such file" : strerror(-r));
  } else if (read(doc, text, len) != 0) {
    r = complain(why, -EINVAL, doc->error);
    why->line = doc->error_line;
  }
  free(text);
  if (r == 0)
    *out = doc;
  else
    doc_free(doc);
  return r;
}

int config_load(const char *path, struct doc **out, struct config_complaint *why) {
  struct doc *doc = NULL;
  int r = load(path, is_json(path) ? json_read : yaml_read, &doc, why);
  if (r == 0)
    r = config_check(doc->root, why);
  if (r == 0)
    *out = doc;
  else
    doc_free(doc);
  return r;
}

/* As Python's expanduser() has it: without slashes at its end. */
int config_load_user(char path[PATH_MAX], struct doc **out, struct config_complaint *why) {
  const char *home = getenv("HOME");
  size_t len = home ? strlen(home) : 0;
  while (len > 0 && home[len - 1] == '/')
    len--;
  int n = snprintf(path, PATH_MAX, "%.*s/.cirron/config.toml", len < PATH_MAX ? (int)len : PATH_MAX, home ? home : "");
  if (!home || n >= PATH_MAX)
    return complain(why, -ENOENT, "there is no such file");
  return load(path, toml_read, out, why);
}
