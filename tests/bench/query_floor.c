/* The floor for tests/bench/query_bench.py: what a C program needs that asks SQLite for rows one by one.
 *
 *   query_floor ROWS.db names|slowest
 */
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  int64_t *v;
  size_t n, room;
  int64_t total;
} names[4096];

static int ascending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void select_nth(int64_t *v, size_t n, size_t k) {
  size_t low = 0, high = n - 1;
  while (low < high) {
    int64_t pivot = v[low + (high - low) / 2];
    size_t i = low, j = high;
    for (;;) {
      while (v[i] < pivot)
        i++;
      while (v[j] > pivot)
        j--;
      if (i >= j)
        break;
      int64_t t = v[i];
      v[i++] = v[j];
      v[j--] = t;
    }
    if (k <= j)
      high = j;
    else
      low = j + 1;
  }
}

static void by_names(sqlite3_stmt *s) {
  while (sqlite3_step(s) == SQLITE_ROW) {
    size_t at = (size_t)sqlite3_column_int64(s, 0) % 4096;
    int64_t d = sqlite3_column_int64(s, 1);
    if (names[at].n == names[at].room) {
      names[at].room = names[at].room ? 2 * names[at].room : 1024;
      names[at].v = realloc(names[at].v, names[at].room * sizeof *names[at].v);
      if (!names[at].v)
        exit(1);
    }
    names[at].v[names[at].n++] = d;
    names[at].total += d;
  }
  for (int i = 0; i < 4096; i++)
    if (names[i].n) {
      size_t p50 = names[i].n / 2, p99 = names[i].n * 99 / 100;
      select_nth(names[i].v, names[i].n, p50);
      int64_t half = names[i].v[p50];
      select_nth(names[i].v, names[i].n, p99);
      printf("%d %zu %lld %lld %lld\n", i, names[i].n, (long long)names[i].total, (long long)half, (long long)names[i].v[p99]);
    }
}

static void slowest(sqlite3_stmt *s) {
  int64_t top[20] = {0};
  while (sqlite3_step(s) == SQLITE_ROW) {
    int64_t d = sqlite3_column_int64(s, 1);
    if (d <= top[0])
      continue;
    top[0] = d;
    qsort(top, 20, sizeof *top, ascending);
  }
  printf("%lld\n", (long long)top[0]);
}

int main(int argc, char **argv) {
  sqlite3 *db;
  sqlite3_stmt *s;
  if (argc != 3 || sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
      sqlite3_prepare_v2(db, "SELECT name, dur_ns FROM r", -1, &s, NULL) != SQLITE_OK) {
    fputs("usage: query_floor ROWS.db names|slowest\n", stderr);
    return 2;
  }
  if (strcmp(argv[2], "names") == 0)
    by_names(s);
  else
    slowest(s);
  sqlite3_finalize(s);
  sqlite3_close(db);
  return 0;
}
