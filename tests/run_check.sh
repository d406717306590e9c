#!/bin/bash
# Runs every suite and sums up. Each suite ends with a line "N passed, N failed, N skipped"; one that prints none, is cut off by its
# time limit, or exits with an error while claiming that nothing failed, counts as one failed. Called by `make check`.
#
#   SUITES="unit e2e-guest" tests/run_check.sh    only these
set -u
cd "$(dirname "$0")/.." || exit 1
make=${MAKE:-make}
unset MAKEFLAGS MFLAGS MAKELEVEL LD_PRELOAD SAN
jobs=$(nproc)
logs=build/check
mkdir -p "$logs"
rm -f "$logs"/*.log "$logs/result"
passed=0 failed=0 skipped=0 failures=
began=$SECONDS

export TORCH_PYTHON=$PWD/.venv/bin/python PYTHONS
PYTHONS=$(tests/run_pythons.sh | tr '\n' ' ')

suite() { # name seconds command...
  local name=$1 limit=$2 from=$SECONDS line status p f s
  shift 2
  if [ -n "${SUITES-}" ] && [[ " $SUITES " != *" $name "* ]]; then
    return
  fi
  timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null
  status=$?
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$logs/$name.log" | tail -n 1)
  IFS=' ,' read -r p _ f _ s _ <<<"${line:-0 passed, 0 failed, 0 skipped}"
  if [ -z "$line" ]; then
    line="no result (exit status $status)"
    f=1
  elif [ "$status" != 0 ] && [ "$f" = 0 ]; then
    line="$line, but exit status $status"
    f=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  printf '  CHECK %-16s %s (%d s)\n' "$name" "$line" $((SECONDS - from))
  if [ "$f" != 0 ]; then
    sed 's/^/    | /' "$logs/$name.log" | tail -n 80
    failures+=$(grep --no-group-separator -A 2 '^FAIL' "$logs/$name.log" | sed "s/^/    $name: /" | head -n 40)$'\n'
  fi
  grep -E '^skip ' "$logs/$name.log" | sed 's/^/    /'
}
build() { # name, arguments for make: a build that fails is one failed test
  local needed=unit\|e2e
  case $1 in *unit*) needed=unit ;; *san) needed=san ;; esac
  [[ -z ${SUITES-} || $SUITES =~ $needed ]] || return 0
  "$make" --no-print-directory -j"$jobs" "${@:2}" >"$logs/$1.log" 2>&1 && return
  failed=$((failed + 1))
  echo "  CHECK $1: does not build"
  tail -n 40 "$logs/$1.log"
  return 1
}

echo "  CHECK interpreters: $PYTHONS"
if build build all fault; then
  build build-unit -k unit # a test that does not build does not run: the suite counts it once more
  suite unit 300 tests/run_unit.sh build/unit
  for script in tests/e2e/*/run.sh; do
    name=$(basename "$(dirname "$script")")
    suite "e2e-$name" 1500 env BUILD="$PWD/build" "$script"
  done
  suite fault-agent 900 env BUILD="$PWD/build" tests/fault/agent/run.sh
fi
# The torch suite once more for each other interpreter here that has torch of its own.
for python in $PYTHONS; do
  if [ "$("$python" -c 'import sys, torch; print(sys.prefix != sys.argv[1])' "$PWD/.venv" 2>/dev/null)" = True ]; then
    suite "torch-$(basename "$python")" 1500 env BUILD="$PWD/build" TORCH_PYTHON="$python" tests/e2e/torch/run.sh
  fi
done
# The same once more with ASan and UBSan: the units, and the programs that face strangers. The agent stays the plain one there,
# because a preloaded sanitizer is no longer a guest.
if build build-san SAN=1 all; then
  build build-unit-san SAN=1 -k unit
  build build-fuzz-san SAN=1 fuzz-replay
  suite fuzz-san 300 tests/fuzz/run.sh build/san/fuzz
  suite unit-san 600 env UBSAN_OPTIONS=print_stacktrace=1 tests/run_unit.sh build/san/unit
  mkdir -p build/san/host
  ln -sfn ../collectord ../cirron-query ../obj ../proto ../gen build/san/host/
  ln -sfn ../../libcirron_agent.so build/san/host/
  for name in collectord query; do
    [ -x "tests/e2e/$name/run.sh" ] && suite "e2e-$name-san" 900 env BUILD="$PWD/build/san/host" "tests/e2e/$name/run.sh"
  done
fi
suite lint 900 "$make" --no-print-directory lint

[ -z "$failures" ] || printf '  CHECK what failed, once more:\n%s' "$failures"
echo "  CHECK took $((SECONDS - began)) s; logs are in $logs"
echo "$passed passed, $failed failed, $skipped skipped" | tee "$logs/result"
[ "$failed" = 0 ]
