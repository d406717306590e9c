/* Where the parts of this installation lie, and whether a collector answers. As the agent looks for them (agent/launch.c, agent/link.c),
 * but from a program's side. */
#ifndef CIRRON_PLACE_H
#define CIRRON_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* libcirron_agent.so beside the running program, or in the lib folder that belongs to its bin. 0, or -ENOENT. */
int place_agent(char out[PATH_MAX]);

/* A program of ours beside the running one, else in the absolute folders of PATH. 0, or -ENOENT. */
int place_program(const char *name, char out[PATH_MAX]);

enum place_answer {
  PLACE_ANSWERS,
  PLACE_NONE,     /* nothing of that name */
  PLACE_STALE,    /* a socket, and nobody behind it */
  PLACE_CLOSED,   /* the modes of socket or folder keep us out */
  PLACE_REFUSES,  /* it hangs up: not for this user, or full */
  PLACE_STRANGER, /* answers, but the agent would not trust it: the folder is not its owner's */
  PLACE_ERROR,    /* anything else: errno */
};

/* Connects to a collector's socket. With wait_ms it waits that long for being refused. *owner: who listens, where it answers. */
enum place_answer place_probe(const char *path, int wait_ms, uid_t *owner);

/* The same, but *fd is the connection where it answers (non-blocking, the caller's), else -1. */
enum place_answer place_connect(const char *path, int *fd, uid_t *owner);

/* Where a private collector of jobs in this directory would listen; `in_tmp`: where there is no folder of the user at run time. */
bool place_private_socket(const char *directory, bool in_tmp, char out[PATH_MAX]);

/* $XDG_RUNTIME_DIR/cirron/collectord.sock, if there is such a folder's name. */
bool place_user_socket(char out[PATH_MAX]);

#endif
