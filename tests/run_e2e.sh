#!/bin/bash
# Runs end-to-end suites by name, each with its output on the terminal: tests/run_e2e.sh guest torch. B is the build folder.
set -u
cd "$(dirname "$0")/.." || exit 1
export BUILD=$PWD/${B:-build} PYTHONS TORCH_PYTHON=$PWD/.venv/bin/python
PYTHONS=${PYTHONS:-$(tests/run_pythons.sh | tr '\n' ' ')}
status=0
for name; do
  "tests/e2e/$name/run.sh" || status=1
done
exit "$status"
