#!/bin/sh
# cirron-query over stores with known contents. BUILD is the build folder; --update writes the expected outputs
# anew, -k PATTERN runs only cases whose name it is found in.
cd "$(dirname "$0")/../../.." || exit 1
build=${BUILD:-$PWD/build}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
san=
case $build in *san*) san=-fsanitize=address,undefined ;; esac
# shellcheck disable=SC2086
if ! ${CC:-cc} -std=gnu11 -O1 -g -D_GNU_SOURCE -Wall -Wextra $san -I. -o "$work/make_store" tests/support/make_store.c \
  "$build"/obj/collectord/store*.o "$build"/obj/collectord/schema.o "$build"/obj/collectord/utf8.o "$build"/proto/block.o "$build"/proto/erase.o \
  "$build"/proto/histogram.o -lsqlite3 -lzstd -lm; then
  echo "FAIL the generator of stores does not build"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
PYTHONDONTWRITEBYTECODE=1 exec_query="$build/cirron-query" make_store="$work/make_store" python3 tests/e2e/query/suite.py "$work" "$@"
