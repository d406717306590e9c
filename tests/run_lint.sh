#!/bin/bash
# Format and static analysis, one test each. Called by `make lint`, which hands over the compiler's flags in CF.
# LINT_NODES bounds how far the analyzer follows a function. Nearly all its time goes into a few that would fill any bound.
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0
mapfile -t all < <(ls agent/*.[ch] collectord/*.[ch] proto/*.[ch] tools/*.[ch] tools/*/*.[ch] tests/*/*.[ch] tests/*/*/*.[ch] 2>/dev/null)
mapfile -t sources < <(ls agent/*.c collectord/*.c proto/*.c tools/*.c tools/*/*.c 2>/dev/null)
bound=${LINT_NODES:+-Xclang -analyzer-config -Xclang max-nodes=$LINT_NODES}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
result() { # status name
  if [ "$1" = 0 ]; then
    echo "ok   $2"
    passed=$((passed + 1))
  else
    echo "FAIL $2"
    failed=$((failed + 1))
    grep -E '(error|warning):' "$out" | sort -u | head -n 40
  fi
}
# Another release lays some lines out differently and finds other things; the tree follows this one.
release=14
pinned() { # tool: is it the pinned release? Else one skipped test.
  "$1" --version 2>/dev/null | grep -q "version $release\." && return
  echo "skip $1: the tree follows release $release"
  skipped=$((skipped + 1))
  return 1
}
if pinned clang-format; then
  clang-format --dry-run -Werror "${all[@]}" >"$out" 2>&1
  result $? "clang-format"
fi
if pinned clang-tidy; then
  printf '%s\0' "${sources[@]}" |
    BOUND=$bound xargs -0 -P "$(nproc)" -n 1 sh -c 'clang-tidy --quiet --warnings-as-errors="*" "$@" -- $CF $BOUND' tidy >"$out" 2>&1
  result $? "clang-tidy"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
