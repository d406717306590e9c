/* Choice between the two ways to learn that a module's body has run. */
#include "trigger.h"

#include "env.h"
#include "session.h"

void trigger_arm(PyObject *code, const char *module) {
  if (py.version >= 312 && trigger_monitor_arm(code, module) == 0)
    return;
  if (trigger_frame_arm(code, module) != 0 && session_env.debug)
    env_debug("%s cannot be observed: its end is not seen", module);
}

void trigger_sweep(void) {
  if (py.version >= 312)
    trigger_monitor_sweep();
}

void trigger_forget(void) {
  trigger_monitor_forget();
  trigger_frame_forget();
}
