#!/bin/bash
# The CPython interpreters of this machine, one path a line: 3.8 to 3.15 in PATH, /usr/bin and pyenv's folder, and those that are built
# without the GIL (3.13t), which the agent leaves alone; each real file and each version once. The system's own comes first.
set -u
shopt -s nullglob
declare -A seen
names=(python3 python3.{8..15} python3.{13..15}t)
candidates=("${names[@]/#//usr/bin/}")
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
  candidates+=("${names[@]/#/$folder/}")
done
candidates+=("${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3)
for candidate in "${candidates[@]}"; do
  [ -x "$candidate" ] || continue
  found=$(cd / && env -u LD_PRELOAD timeout 20 "$candidate" -c '
import os, platform, sys
if platform.python_implementation() == "CPython" and (3, 8) <= sys.version_info[:2] <= (3, 15):
    print("%d.%d.%d" % sys.version_info[:3] + getattr(sys, "abiflags", ""), os.path.realpath(sys.executable))' 2>/dev/null </dev/null) || continue
  read -r version path <<<"$found"
  [ -n "$path" ] && [ -z "${seen[$version]-}" ] && [ -z "${seen[$path]-}" ] || continue
  seen[$version]=1 seen[$path]=1
  echo "$path"
done
