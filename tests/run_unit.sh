#!/bin/bash
# Runs every unit test of a build folder and sums up what cmocka says: tests/run_unit.sh build/unit
# A test program that dies, hangs, or says nothing is one failure more.
set -u
cd "$(dirname "$0")/.." || exit 1
folder=${1:-build/unit}
passed=0 failed=0 skipped=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
count() { # sum of the numbers in lines like "[  PASSED  ] 4 test(s)."
  awk -v word="$1" '$0 ~ "^\\[ +" word " +\\] [0-9]+ test" { sub(/^[^]]*\] /, ""); n += $1 } END { print n + 0 }' "$out"
}
for source in tests/unit/test_*.c; do
  name=$(basename "$source" .c)
  timeout -k 5 "${UNIT_TIMEOUT:-120}" "$folder/$name" >"$out" 2>&1 </dev/null
  status=$?
  p=$(count PASSED) f=$(count FAILED) s=$(count SKIPPED)
  if [ "$status" != 0 ] && [ "$f" = 0 ] || [ $((p + f + s)) = 0 ]; then
    f=$((f + 1))
  fi
  if [ "$f" != 0 ]; then
    echo "FAIL $name (exit status $status)"
    grep -v -e '^\[ RUN  ' -e '^\[       OK' "$out" | tail -n 60
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
