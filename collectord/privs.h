/* Who the collector runs as and who may use it: --user, --group, --any-user.
 *
 * Root is needed for nothing but making the two folders. So it is given up before the store is opened and before the first byte
 * of a stranger is read, and cannot be had back.
 */
#ifndef CIRRON_PRIVS_H
#define CIRRON_PRIVS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct config;

#define PRIVS_NO_GROUP ((gid_t)-1)

struct privs {
  const char *user; /* borrowed; NULL: stay who we are */
  uid_t uid;
  gid_t gid;   /* what new files belong to */
  gid_t group; /* whose members may come and read, or PRIVS_NO_GROUP */
  mode_t umask, socket_mode;
};

/* Looks the names up. On failure `why` is one line that says which is wrong and what to do. */
int privs_find(const struct config *config, struct privs *out, char *why, size_t why_len);

/* Makes the last folder of a file's path where it is missing: for the user that privs_drop makes of us. `open`: others have to get
 * through to the file. What is wrong with a folder is said by who opens the file. */
void privs_make_folder(const struct privs *privs, const char *path, bool open);

/* Becomes that user and group, for good, and sets the umask. */
int privs_drop(const struct privs *privs, char *why, size_t why_len);

/* Lets the group read a store that was made without it. Only files of our own. */
void privs_share_store(const struct privs *privs, const char *db);

#endif
