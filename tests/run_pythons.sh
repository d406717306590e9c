#!/bin/bash
# The CPython interpreters of this machine, one path a line: 3.8 to 3.14 in PATH, /usr/bin and pyenv's folder; each real file and
# each version once. The system's own comes first.
set -u
shopt -s nullglob
declare -A seen
candidates=(/usr/bin/python3 /usr/bin/python3.{8..14})
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
  candidates+=("$folder"/python3 "$folder"/python3.{8..14})
done
candidates+=("${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3)
for candidate in "${candidates[@]}"; do
  [ -x "$candidate" ] || continue
  found=$(cd / && env -u LD_PRELOAD timeout 20 "$candidate" -c '
import os, platform, sys
if platform.python_implementation() == "CPython" and (3, 8) <= sys.version_info[:2] <= (3, 14):
    print("%d.%d.%d" % sys.version_info[:3], os.path.realpath(sys.executable))' 2>/dev/null </dev/null) || continue
  read -r version path <<<"$found"
  [ -n "$path" ] && [ -z "${seen[$version]-}" ] && [ -z "${seen[$path]-}" ] || continue
  seen[$version]=1 seen[$path]=1
  echo "$path"
done
