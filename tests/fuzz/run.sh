#!/bin/bash
# Replays the corpus of every fuzz target, as built by `make fuzz-replay`: run.sh BUILD/fuzz. One test a target.
set -u
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0
for source in tests/fuzz/fuzz_*.c; do
  name=$(basename "$source" .c)
  if out=$(timeout 120 "$1/$name" "tests/fuzz/corpus/${name#fuzz_}" 2>&1); then
    passed=$((passed + 1))
    echo "ok   $name: ${out##*$'\n'}"
  else
    failed=$((failed + 1))
    echo "FAIL $name"
    tail -n 40 <<<"$out"
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
