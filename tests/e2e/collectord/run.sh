#!/bin/sh
# collectord alone, with programs that play an agent: lifetimes, deaths on either side, full disks, strangers.
cd "$(dirname "$0")" || exit 1
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=.. exec python3 suite.py -j 2 "$@"
