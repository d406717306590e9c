#!/bin/sh
# The agent as a guest: programs that it does not concern, and Python programs, run as if it were absent.
cd "$(dirname "$0")" || exit 1
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=.. exec python3 suite.py -j 2 "$@"
