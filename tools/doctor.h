/* What `cirron-query doctor` looks at. Each area is a file; each finding is a line. */
#ifndef CIRRON_DOCTOR_H
#define CIRRON_DOCTOR_H

#include "cli.h"

enum doctor_status { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor {
  const struct cli *cli;
  struct out *out; /* NULL: lines for people */
  bool failed;
  bool answered; /* a collector answers where the agent looks */
};

/* One finding. What is not ok also says what to do, behind a semicolon. */
void doctor_find(struct doctor *d, enum doctor_status status, const char *area, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

void doctor_kernel(struct doctor *d);    /* what agent and collector ask of the system */
void doctor_agent(struct doctor *d);     /* its file, LD_PRELOAD, settings */
void doctor_collector(struct doctor *d); /* the sockets, the program, where a private one would keep its store */
void doctor_store(struct doctor *d);     /* the file, its rights and its disk, what is in it */

#endif
