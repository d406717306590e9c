#!/bin/bash
# The suites of frameworks with other Pythons and other builds of torch than `make check` has. Called by `make check-matrix`. Ends like it.
#
#   3.12, 3.13    an environment of each of these Pythons that is here, .venv-3.12 and so on, with what requirements.txt pins:
#                 torch, snapshots, frameworks, ranks; the judge, where JUDGE is
#   debian        the system's own python3-torch, which DEBIAN_TORCH=1 installs: torch, and the judge
#   tensorflow    .venv-tensorflow, with what requirements-tensorflow.txt pins and the packages of .venv: frameworks, snapshots
#
#   MATRIX="3.12 tensorflow" tests/run_matrix.sh    only these
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/suites.sh
unset MAKEFLAGS MFLAGS MAKELEVEL LD_PRELOAD SAN ALONE LONG
open_logs build/matrix MATRIX

chosen() { [[ -z ${MATRIX-} || " $MATRIX " == *" $1 "* ]]; }
run() { # as suite, alone
  echo "  MATRIX $1 ..."
  start 1 "$@"
  room 1
}
e2e() { # label suite, the Python of system or pyenv, that which has torch, more variables
  run "$1-$2" 3600 env BUILD="$PWD/build" PYTHONS="$3" TORCH_PYTHON="$4" "${@:5}" "tests/e2e/$2/run.sh"
}
judge() { # label, a Python
  if [ -f "${JUDGE-}" ]; then
    run "$1-judge" 3600 python3 "$JUDGE" --agent build/libcirron_agent.so --collectord build/collectord \
      --query build/cirron-query --python "$2" -j 2
  else
    skipped "$1-judge" "JUDGE=${JUDGE-} is not there"
  fi
}
venv() { # arguments of venv.sh; ended with us
  guarded tests/setup/venv.sh "$@" &
  beside=($!)
  wait "${beside[0]}"
}

found=$(tests/run_pythons.sh)
for version in 3.12 3.13; do
  chosen "$version" || continue
  python=$(grep -m 1 "/python$version\$" <<<"$found")
  if [ -z "$python" ]; then
    skipped "$version" "there is no such Python here"
  elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    skipped "$version" "$python has no module venv or ensurepip"
  elif ! venv ".venv-$version" "$python"; then
    failed "$version" ".venv-$version could not be made"
  else
    for name in torch snapshots frameworks ranks; do
      e2e "$version" "$name" "$python" "$PWD/.venv-$version/bin/python"
    done
    judge "$version" ".venv-$version/bin/python"
  fi
done

if chosen debian; then
  has_torch() { /usr/bin/python3 -c 'import sys, torch; sys.exit(not torch.__file__.startswith("/usr/lib/"))' 2>/dev/null; }
  if ! has_torch && [ -n "${DEBIAN_TORCH-}" ] && ! tests/setup/packages.sh torch; then
    failed debian "python3-torch could not be installed"
  elif has_torch; then
    python=$(readlink -f /usr/bin/python3)
    "$python" -c 'import platform, torch; print("  MATRIX debian: torch", torch.__version__, "with Python", platform.python_version())'
    e2e debian torch "$python" "$python"
    judge debian "$python"
  else
    skipped debian "/usr/bin/python3 has no torch; DEBIAN_TORCH=1 installs python3-torch for the whole system"
  fi
fi

if chosen tensorflow; then
  pins=requirements-tensorflow.txt
  if [ ! -f "tests/setup/$pins" ]; then
    skipped tensorflow "there is no tests/setup/$pins"
  elif ! venv .venv-tensorflow "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" "$pins" .venv; then
    failed tensorflow ".venv-tensorflow could not be made"
  else
    for name in frameworks snapshots; do
      e2e tensorflow "$name" "${found%%$'\n'*}" "$PWD/.venv/bin/python" TENSORFLOW_PYTHON="$PWD/.venv-tensorflow/bin/python"
    done
  fi
fi
sums
