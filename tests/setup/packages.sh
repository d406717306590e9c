#!/bin/sh
# Installs the Debian packages that are missing, and says which. Quick and silent when none is.
#
#   packages.sh build    what building and the demo need
#   packages.sh check    what the tests need on top
#   packages.sh torch    the system's own torch, for `make check-matrix DEBIAN_TORCH=1`
set -u
BUILD="gcc libc6-dev make binutils pkg-config libevent-dev libprotobuf-c-dev protobuf-c-compiler libsqlite3-dev libzstd-dev
  libsmartcols-dev libjansson-dev uthash-dev python3 python3-venv"
CHECK="dpkg-dev man-db systemd libcmocka-dev clang clang-format clang-tidy sqlite3 procps"
case "${1-}" in
build) wanted=$BUILD ;;
check) wanted=$CHECK ;;
torch) wanted=python3-torch ;;
*) echo "usage: $0 build|check|torch" >&2; exit 2 ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  command -v pkg-config >/dev/null && command -v protoc-c >/dev/null && exit 0
  echo "This is not a Debian system. Install what these Debian packages hold, then run make again:" $wanted >&2
  exit 1
fi
missing=
for package in $wanted; do
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "  SETUP installing:$missing"
as_root=
if [ "$(id -u)" != 0 ]; then
  as_root="sudo"
  command -v sudo >/dev/null || { echo "Neither root nor sudo: have an administrator install:$missing" >&2; exit 1; }
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null >"$log" 2>&1 && return 0
  tail -n 20 "$log" >&2
  return 1
}
run update || echo "apt-get update failed; trying with the lists that are there" >&2
# shellcheck disable=SC2086
run install -y --no-install-recommends $missing || { echo "could not install:$missing" >&2; exit 1; }
