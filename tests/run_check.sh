#!/bin/bash
# Runs every suite and sums up. Called by `make check`.
#
# Most tests wait more than they work, so two suites run at a time, and beside them, with lower priority, what only works: the other
# builds and the static analysis. Tests that look at the clock (@alone) come at the end, when nothing else runs.
#
#   SUITES="unit e2e-guest" tests/run_check.sh    only these
#   LONG=1 tests/run_check.sh                     every test on every interpreter, the analysis without a bound (`make check-long`)
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/suites.sh
make=${MAKE:-make}
unset MAKEFLAGS MFLAGS MAKELEVEL LD_PRELOAD SAN ALONE
open_logs build/check CHECK

nodes=75000 # how far the analyzer follows a function; by itself, three times as far
[ -z "${LONG-}" ] || nodes=
export LONG=${LONG-} TORCH_PYTHON=$PWD/.venv/bin/python PYTHONS
PYTHONS=$(tests/run_pythons.sh | tr '\n' ' ')

# Is it asked for? A name, or a pattern for several.
chosen() { [[ -z ${SUITES-} || " $SUITES " == *" $1 "* ]]; }
any() { [[ -z ${SUITES-} || $SUITES =~ $1 ]]; }

build() { # name, arguments for make: a build that fails is one failed test
  guarded timeout -k 10 900 "$make" --no-print-directory -j"$(nproc)" "${@:2}" >"$logs/$1.log" 2>&1 && return
  echo "    $1: does not build" >"$logs/$1.failed"
  {
    echo "  CHECK $1: does not build"
    tail -n 40 "$logs/$1.log"
  } | count "$1" 0 1 0
  return 1
}
run() { # as suite, as soon as fewer than two are running
  chosen "$1" && start 2 "$@"
}
e2e() { # name
  run "e2e-$1" 1800 env ALONE=no BUILD="$PWD/build" "tests/e2e/$1/run.sh"
}
alone() { # name command...
  chosen "$1" || return 0
  start 1 "$1-alone" 900 env ALONE=only BUILD="$PWD/build" "${@:2}"
  room 1
}

# What needs a compiler and no tests: one after the other. Each leaves a mark when it is through.
works() {
  renice -n 10 $BASHPID >/dev/null
  any unit && build build-unit -k unit # a test that does not build does not run: the suite counts it once more
  echo >"$logs/unit.built"
  # With ASan and UBSan: the units, and the programs that face strangers. The agent stays the plain one there, because a preloaded
  # sanitizer is no longer a guest.
  if any san && build build-san SAN=1 all; then
    build build-unit-san SAN=1 -k unit
    build build-fuzz-san SAN=1 fuzz-replay
    mkdir -p build/san/host
    ln -sfn ../collectord ../cirron-query ../obj ../proto ../gen build/san/host/
    ln -sfn ../../libcirron_agent.so build/san/host/
    echo >"$logs/san.built"
  fi
  chosen lint && suite lint 1800 env LINT_NODES="$nodes" "$make" --no-print-directory lint
}
built() { # unit or san, once `works` has got so far: is it there?
  while [ ! -e "$logs/$1.built" ] && kill -0 "$works" 2>/dev/null; do
    sleep 0.2
  done
  [ -e "$logs/$1.built" ]
}

echo "  CHECK interpreters: $PYTHONS"
# The packages of the tests come while the compiler works and tests run that need none.
guarded tests/setup/venv.sh >"$logs/venv.log" 2>&1 &
venv=$!
beside+=("$venv")
there=1
if any 'unit|e2e|fault-agent|torch'; then
  (build build all fault) || there=
fi
works &
works=$!
beside+=("$works")

short=(collectord dist)
long=(guest module torch snapshots frameworks transport) # the longest are not to be the last
[ -n "$there" ] && for name in "${short[@]}"; do
  e2e "$name"
done
wait "$venv" || failed venv "it could not be made"
cat "$logs/venv.log"
with_torch=()
if [ -n "$there" ]; then
  for name in "${long[@]}"; do
    e2e "$name"
  done
  run fault-agent 900 env ALONE=no BUILD="$PWD/build" tests/fault/agent/run.sh
  # The torch suite once more for each other interpreter here that has torch of its own.
  for python in $PYTHONS; do
    [ "$("$python" -c 'import sys, torch; print(sys.prefix != sys.argv[1])' "$PWD/.venv" 2>/dev/null)" = True ] && with_torch+=("$python")
  done
  for python in "${with_torch[@]}"; do
    run "torch-$(basename "$python")" 1800 env ALONE=no BUILD="$PWD/build" TORCH_PYTHON="$python" tests/e2e/torch/run.sh
  done
  for script in tests/e2e/*/run.sh; do
    name=$(basename "$(dirname "$script")")
    [[ " ${short[*]} ${long[*]} " == *" $name "* ]] || e2e "$name"
  done
  built unit && run unit 300 tests/run_unit.sh build/unit
fi
if built san; then
  run fuzz-san 300 tests/fuzz/run.sh build/san/fuzz
  run unit-san 600 env UBSAN_OPTIONS=print_stacktrace=1 tests/run_unit.sh build/san/unit
  for name in collectord query; do
    run "e2e-$name-san" 900 env BUILD="$PWD/build/san/host" "tests/e2e/$name/run.sh"
  done
fi
room 1
wait "$works"
if [ -n "$there" ]; then
  for name in $(grep -l '^@alone' tests/e2e/*/*.py tests/fault/kills/*.py | cut -d/ -f3 | sort -u); do
    alone "e2e-$name" "tests/e2e/$name/run.sh"
  done
  for python in "${with_torch[@]}"; do
    alone "torch-$(basename "$python")" env TORCH_PYTHON="$python" tests/e2e/torch/run.sh
  done
fi
sums
