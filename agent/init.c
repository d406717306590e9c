/* Start and end of the agent.
 *
 *   1. the loader runs agent_load; a program without CPython symbols is left at once, untouched
 *   2. attach_early finds the interpreter and calls agent_start: settings, probe tables, fork handler
 *   3. the audit hook and the built-in module go in; Python starts
 *   4. modules named in a probe table run; their functions are observed (observe.c)
 *   5. the first span makes the session, the segment, a ring, the connection (session.c, link.c)
 *   6. the interpreter's end closes the session; failing that, agent_unload does
 *
 * An interpreter that is loaded later enters at 2 through setlocale (attach.c).
 */
#include "init.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "attach.h"
#include "check.h"
#include "cost.h"
#include "framework.h"
#include "frameworks.h"
#include "glibc.h"
#include "keep.h"
#include "keras.h"
#include "lightning.h"
#include "link.h"
#include "loop.h"
#include "module_sink.h"
#include "module_state.h"
#include "observe.h"
#include "scope.h"
#include "session.h"
#include "shed.h"
#include "sink.h"
#include "snapshot.h"
#include "task.h"
#include "torch.h"
#include "trainer.h"
#include "versions.h"

/* Nothing of the last session is left. Only async-signal-safe work, and no lock is waited for: the child may have been forked while
 * another thread held one. */
static void forget_session(void) {
  check_forget();
  shed_forget();
  session_forget();
  keep_forget();
  sink_forget();
  module_sink_forget();
  torch_forget();
  snapshot_forget();
  keras_forget();
  lightning_forget();
  framework_forget();
  versions_forget();
  task_forget();
  module_left_forget();
  module_json_forget();
}

static void agent_forked(void) {
  scope_forget();
  forget_session();
}

static bool started_on; /* tracing was on when the interpreter was found */

bool agent_start(void) {
  static bool started;
  if (started)
    return session_env.enabled;
  started = true;
  env_read(&session_env);
  if (!session_env.enabled)
    return false;
  started_on = true;
  session_init();
  torch_add_probes();
  trainer_add_probes();
  keras_add_probes();
  lightning_add_probes();
  versions_start();
  snapshot_start();
  observe_allowed = frameworks_allow;
  task_add_probes();
  check_start();
  shed_start();
  return pthread_atfork(NULL, NULL, agent_forked) == 0;
}

/* Other threads have stacks of the session that has ended, and find that out when they come by: they all need the GIL for that, which the
 * caller has, or are at their end. */
int agent_resume(void) {
  if (!started_on || !session_ended())
    return -ENOTSUP;
  if (!py_only_gil())
    return -EBUSY;
  scope_hold_ends();
  bool detached = scope_detach();
  if (detached)
    forget_session();
  session_env.enabled = session_env.enabled || detached;
  scope_release_ends();
  return detached ? 0 : -ENOMEM;
}

__attribute__((constructor)) static void agent_load(void) {
  clock_start();
  cost_start();
  struct cost_timing cost = cost_rare();
  (void)attach_early(); /* false: no interpreter here, or not yet */
  cost_end(&cost);
}

__attribute__((destructor)) static void agent_unload(void) {
  session_close();
}
