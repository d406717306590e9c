/* A traced process seen from outside: does it live, is it still the program that talked to us, how did it end.
 *
 * No ptrace, no signals, no child of ours. All of it may fail where /proc is hidden or the pid is of another namespace; then the
 * answer is "unknown" and the session decides by what was said on its connection.
 */
#ifndef CIRRON_PROCESS_H
#define CIRRON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process_exit {
  bool known;
  int code;   /* exit status, -1 if a signal ended it */
  int signal; /* or 0 */
};

/* A pidfd of the peer of a connected Unix socket; it becomes readable when the process has ended. -ESRCH: it has already. */
int process_open_peer(int socket, pid_t pid);
int process_open(pid_t pid);

/* How it ended, once its pidfd is readable. */
struct process_exit process_exit_status(int pidfd, pid_t pid);

bool process_ended(int pidfd);

/* It has ended, and how is kept from us as long as its parent has not waited for it: another user's, and we are not root. */
bool process_status_hidden(pid_t pid);

enum process_mapping { PROCESS_MAPS, PROCESS_MAPS_NOT, PROCESS_GONE, PROCESS_UNKNOWN };

/* Does the process map the memfd of this inode, or (0) any memfd that an agent makes: its name begins with PROCESS_MEMFD?
 * PROCESS_MAPS_NOT: no, it has become another program. PROCESS_GONE: it has no memory any more, it is ending. */
#define PROCESS_MEMFD "cirron-"
enum process_mapping process_mapping(pid_t pid, ino_t inode);

/* Does it map exactly these bytes? As process_mapping, for a process whose memory has no name. */
enum process_mapping process_maps_range(pid_t pid, uint64_t address, uint64_t bytes);

/* Wall-clock time at which the process of this pid began; -ESRCH if there is none. */
int process_start_wall(pid_t pid, int64_t *start_ns);

#endif
