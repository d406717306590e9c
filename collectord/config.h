/* The settings of collectord: one table parses, checks and explains them, for the command line and for --config. */
#ifndef CIRRON_CONFIG_H
#define CIRRON_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config {
  bool foreground;
  bool any_user;
  char socket[PATH_MAX]; /* empty: where agents look first (link_abi.h) */
  char db[PATH_MAX];
  uint64_t idle_exit_s;     /* 0: never */
  char user[64], group[64]; /* empty: as we are; nobody else */
  uint64_t max_sessions, max_rings;
  uint64_t max_user_sessions;           /* of one user */
  uint64_t max_rate, max_session_bytes; /* of one session; 0: no limit */
  uint64_t keep_days, max_db_bytes;     /* 0: no limit */
};

enum config_result {
  CONFIG_RUN,     /* go on with *out */
  CONFIG_DONE,    /* --help or --version: `message` is for stdout */
  CONFIG_INVALID, /* `message` is one line for stderr */
};

/* Reads the command line and the file that --config names; what the command line says counts. */
enum config_result config_parse(int argc, char *const *argv, struct config *out, char *message, size_t message_len);

#endif
