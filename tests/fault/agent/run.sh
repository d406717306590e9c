#!/bin/sh
# Fault injection into the agent: builds fail.c and runs suite.py.
cd "$(dirname "$0")" || exit 1
mkdir -p "$BUILD/fault" && export FAULT_LIBRARY="$BUILD/fault/fail.so"
${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -fPIC -shared -o "$FAULT_LIBRARY" fail.c -ldl || exit 1
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=../../e2e:../../e2e/guest exec python3 suite.py -j 4 "$@"
