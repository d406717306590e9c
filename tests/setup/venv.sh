#!/bin/sh
# The Python environment of demo and tests: .venv with what requirements.txt pins. Built anew only when that file changes.
set -u
cd "$(dirname "$0")/../.." || exit 1
stamp=.venv/.requirements
.venv/bin/python -c '' 2>/dev/null && cmp -s tests/setup/requirements.txt "$stamp" && exit 0

# The system's interpreter first: its venv module is the one that packages.sh installs.
base=
for python in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
  "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && base=$python && break
done
[ -n "$base" ] || { echo "no Python 3.11 or later with venv was found" >&2; exit 1; }
echo "  SETUP .venv: $("$base" --version), $(tr '\n' ' ' <tests/setup/requirements.txt)"
rm -rf .venv
"$base" -m venv .venv || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! .venv/bin/python -m pip install -q --disable-pip-version-check --no-input -r tests/setup/requirements.txt </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  rm -rf .venv
  exit 1
fi
cp tests/setup/requirements.txt "$stamp"
