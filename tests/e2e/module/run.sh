#!/bin/sh
# The Python module cirron: its surface (and wrap with scikit-learn) on a fake stack, the same module under the real agent, and the agent's file imported by name.
cd "$(dirname "$0")" || exit 1
./build_fake.sh || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=.. exec python3 suite.py -j 2 "$@"
