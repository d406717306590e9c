#!/bin/sh
# Calls of collectord that fail (tests/fault/collectord). ROUNDS=10 tries ten times as many.
cd "$(dirname "$0")/../../fault/collectord" || exit 1
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../../e2e:../kills exec python3 faults.py -j 4 "$@"
