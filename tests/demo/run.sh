#!/bin/sh
# A real training under the agent, in a folder of its own, and what cirron-query says of it. B is the build folder.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
build=$root/${B:-build}
# Nothing of the caller's settings: the agent starts a private collector, as it does where none is installed.
for name in $(env | sed -n 's/^\(CIRRON_[A-Z_]*\)=.*/\1/p') LD_PRELOAD RANK LOCAL_RANK WORLD_SIZE XDG_RUNTIME_DIR; do
  unset "$name"
done
here=$(mktemp -d "${TMPDIR:-/tmp}/cirron-demo.XXXXXX")
cp tests/demo/train.py "$here"
cd "$here"

echo
echo "\$ cd $here"
echo "\$ LD_PRELOAD=$build/libcirron_agent.so python train.py"
LD_PRELOAD=$build/libcirron_agent.so "$root/.venv/bin/python" train.py
# The collector works beside the job, not in it: give it a moment to see the end.
tries=0
while "$build/cirron-query" --format jsonl sessions 2>/dev/null | grep -q '"running"' || [ ! -e .cirron/traces.db ]; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || break
  sleep 0.1
done
echo
echo "\$ cirron-query"
"$build/cirron-query"
echo
echo "More from the same store, which stays in $here/.cirron:"
echo "  cd $here"
echo "  $build/cirron-query tree"
echo "  $build/cirron-query steps"
echo "  $build/cirron-query --help"
