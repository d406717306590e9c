/* The checkpointing thread (store_checkpoint.h).
 *
 * PASSIVE waits for nobody and holds nobody up: the writer goes on appending meanwhile. What was appended during the copying is copied
 * by another round, which has less to do. Once everything is copied, the next transaction starts the WAL from its beginning again (and
 * cuts the file to the size that is kept). Where commits come so closely that no round catches up, the writer has to copy the little that
 * is left between two of its transactions: store_checkpoint_almost tells it when. (TRUNCATE from here would have to win the lock from a
 * writer that hardly lets go of it, and would hold it while waiting for readers.)
 *
 * A reader that stays at an old moment keeps the WAL from starting anew: no checkpoint can help that, it is what the reader reads.
 */
#include "store_checkpoint.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 3 /* of PASSIVE in a row, until one finds everything copied */
#define ALMOST_PAGES 4096

struct store_checkpoint {
  char *path;
  bool started;
  pthread_t thread;
  pthread_mutex_t lock; /* protects what follows; nothing else is taken while it is held */
  pthread_cond_t changed;
  bool asked, busy, stop, almost;
  int left;
};

/* One checkpoint. Returns the pages that are still only in the WAL; -1: it could not be done. */
static int checkpoint(sqlite3 *db) {
  int pages = 0, copied = 0, rc = SQLITE_OK;
  for (int round = 0; round < ROUNDS; round++) {
    rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &copied);
    if (rc != SQLITE_OK || pages <= copied)
      break;
  }
  if (rc != SQLITE_OK && rc != SQLITE_BUSY)
    return -1;
  return pages > copied ? pages - copied : 0;
}

/* Opened anew after each failure: the disk may have been full. */
static sqlite3 *connect_db(const char *path) {
  sqlite3 *db = NULL;
  if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK ||
      sqlite3_exec(db, "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0", NULL, NULL, NULL) != SQLITE_OK) {
    (void)sqlite3_close(db); /* nothing is under way on it */
    return NULL;
  }
  return db;
}

static void *work(void *arg) {
  struct store_checkpoint *c = arg;
  sqlite3 *db = NULL;
  pthread_mutex_lock(&c->lock);
  while (!c->stop) {
    if (!c->asked) {
      pthread_cond_wait(&c->changed, &c->lock);
      continue;
    }
    c->asked = false;
    c->busy = true;
    pthread_mutex_unlock(&c->lock);
    db = db ? db : connect_db(c->path);
    int left = db ? checkpoint(db) : -1;
    if (left < 0) {
      (void)sqlite3_close(db);
      db = NULL;
    }
    pthread_mutex_lock(&c->lock);
    c->left = left < 0 ? 0 : left;
    c->almost = left > 0 && left <= ALMOST_PAGES;
    c->busy = false;
    pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->lock);
  (void)sqlite3_close(db); /* accepts NULL */
  return NULL;
}

/* Signals are for the thread of the event loop. */
static int start(struct store_checkpoint *c) {
  sigset_t all, before;
  sigfillset(&all);
  int rc = pthread_sigmask(SIG_SETMASK, &all, &before);
  if (rc)
    return -rc;
  rc = pthread_create(&c->thread, NULL, work, c);
  c->started = rc == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* worked the other way */
  return -rc;
}

int store_checkpoint_new(const char *path, struct store_checkpoint **out) {
  struct store_checkpoint *c = calloc(1, sizeof *c);
  if (!c)
    return -ENOMEM;
  c->path = strdup(path);
  if (!c->path) {
    free(c);
    return -ENOMEM;
  }
  pthread_mutex_init(&c->lock, NULL); /* neither fails on Linux */
  pthread_cond_init(&c->changed, NULL);
  *out = c;
  return 0;
}

int store_checkpoint_ask(struct store_checkpoint *c) {
  int rc = c->started ? 0 : start(c);
  if (rc)
    return rc;
  pthread_mutex_lock(&c->lock);
  c->asked = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  return 0;
}

int store_checkpoint_left(struct store_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  int left = c->left;
  pthread_mutex_unlock(&c->lock);
  return left;
}

bool store_checkpoint_almost(struct store_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  bool almost = c->almost && !c->busy && !c->asked;
  c->almost = c->almost && !almost;
  pthread_mutex_unlock(&c->lock);
  return almost;
}

void store_checkpoint_wait(struct store_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  while (c->started && (c->asked || c->busy))
    pthread_cond_wait(&c->changed, &c->lock);
  pthread_mutex_unlock(&c->lock);
}

void store_checkpoint_free(struct store_checkpoint *c) {
  if (!c)
    return;
  pthread_mutex_lock(&c->lock);
  c->stop = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  if (c->started)
    (void)pthread_join(c->thread, NULL); /* it is there and ours */
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
  free(c->path);
  free(c);
}
