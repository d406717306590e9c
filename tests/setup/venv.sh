#!/bin/sh
# A Python environment with what requirements.txt pins: .venv for demo and tests, others for `make check-matrix`. Built anew only when
# that file changes.
#
#   venv.sh                          .venv, of the system's own Python
#   venv.sh FOLDER PYTHON            of this one
#   venv.sh FOLDER PYTHON FILE OVER  with what FILE of this folder pins, and for the rest the packages of the environment OVER
set -u
cd "$(dirname "$0")/../.." || exit 1
folder=${1:-.venv} base=${2-} wanted=tests/setup/${3:-requirements.txt}
stamp=$folder/.requirements
"$folder/bin/python" -c '' 2>/dev/null && cmp -s "$wanted" "$stamp" && exit 0

if [ -z "$base" ]; then # the system's interpreter first: its venv module is the one that packages.sh installs
  for python in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
    "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && base=$python && break
  done
fi
[ -n "$base" ] || { echo "no Python 3.11 or later with venv was found" >&2; exit 1; }
echo "  SETUP $folder: $("$base" --version), $(tr '\n' ' ' <"$wanted")"
rm -rf "$folder"
"$base" -m venv "$folder" || exit 1
if [ -n "${4-}" ]; then
  "$4/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$folder/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')/over.pth" || exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "$folder/bin/python" -m pip install -q --disable-pip-version-check --no-input -r "$wanted" </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  rm -rf "$folder"
  exit 1
fi
cp "$wanted" "$stamp"
