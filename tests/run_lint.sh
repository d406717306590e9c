#!/bin/bash
# Format and static analysis, one test each. Called by `make lint`, which hands over the compiler's flags in CF.
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0
mapfile -t all < <(ls agent/*.[ch] collectord/*.[ch] proto/*.[ch] tools/*.[ch] tests/*/*.[ch] tests/e2e/*/*.[ch] 2>/dev/null)
mapfile -t sources < <(ls agent/*.c collectord/*.c proto/*.c tools/*.c 2>/dev/null)
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
# Another release of clang-format lays some lines out differently; the tree follows this one.
if clang-format --version | grep -q 'version 14\.'; then
  clang-format --dry-run -Werror "${all[@]}" >"$out" 2>&1
  result $? "clang-format"
else
  echo "skip clang-format: the tree is laid out by release 14, here is $(clang-format --version | grep -o 'version [0-9.]*')"
  skipped=$((skipped + 1))
fi
printf '%s\0' "${sources[@]}" |
  xargs -0 -P "$(nproc)" -n 4 sh -c 'clang-tidy --quiet --warnings-as-errors="*" "$@" -- $CF' tidy >"$out" 2>&1
result $? "clang-tidy"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
