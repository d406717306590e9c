/* See module_snapshot.h. */
#include "module_snapshot.h"

#include "module_check.h"
#include "module_state.h"
#include "snapshot.h"

/* `snapshots` was checked: it is one of these words. */
static enum env_snapshots mode_of(PyObject *word) {
  static const char *const words[] = {"stats", "sampled", "full", "off"}; /* in the order of enum env_snapshots */
  for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
    if (word && py.PyUnicode_CompareWithASCIIString(word, words[i]) == 0)
      return (enum env_snapshots)i;
  return ENV_STATS;
}

int module_snapshot_set(PyObject *settings) {
  char folder[MODULE_PATH_MAX];
  PyObject *rate = py_dict_get(settings, "sample_rate"), *mode = py_dict_get(settings, "snapshots");
  const struct module_given given = {.who = "profile", .name = "output_dir", .value = py_dict_get(settings, "output_dir")};
  struct snapshot_settings to = {.mode = mode_of(mode), .sample_rate = rate ? py.PyFloat_AsDouble(rate) : 0};
  if (given.value && module_check_path_bytes(&given, folder) == 0)
    to.folder = folder;
  py.PyErr_Clear(); /* a path that cannot be one of the file system: no raw tensors are written */
  snapshot_set(&to);
  return 0;
}
