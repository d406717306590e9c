#!/bin/sh
# kill -9 of jobs and collectors at random moments (tests/fault/kills). ROUNDS=10 tries ten times as often.
cd "$(dirname "$0")/../../fault/kills" || exit 1
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../../e2e exec python3 kills.py -j 4 "$@"
