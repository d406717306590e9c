#!/bin/bash
# The package in fresh Debian systems: install, record as the service and privately, upgrade, remove, purge. Not part of make check:
# it takes root, debootstrap and a Debian mirror.
#
#   tests/dist/deb.sh [SUITE ...]       bookworm and trixie, if none is named
#   ROOTS=DIR                           keeps the systems there, and uses those that are there
#   BOOT=1                              boots each one under systemd-nspawn, too: the units as they run
set -u
cd "$(dirname "$0")/../.." || exit 1
[ "$(id -u)" = 0 ] || { echo "root is needed" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "debootstrap is needed" >&2; exit 1; }
[ $# != 0 ] || set -- bookworm trixie
passed=0 failed=0 skipped=0
roots=${ROOTS-}
[ -n "$roots" ] || { roots=$(mktemp -d) && trap 'rm -rf "$roots"' EXIT; }

check() { # what command...
  local what=$1
  shift
  if "$@" >"$roots/out" 2>&1; then
    echo "ok   $suite: $what"
    passed=$((passed + 1))
  else
    echo "FAIL $suite: $what"
    sed 's/^/     | /' "$roots/out" | tail -n 20
    failed=$((failed + 1))
  fi
}
inside() { LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
is() { # a shell condition inside
  inside sh -ec "$1"
}
package() { # version build-folder
  make --no-print-directory -j"$(nproc)" deb VERSION="$1" B="$2" >"$roots/make.log" 2>&1 || { cat "$roots/make.log" >&2; return 1; }
  cp "$2/cirron_$1_$(dpkg --print-architecture).deb" "$roots/"
}

first=$(sed -n 's/^VERSION := //p' Makefile) second=$first+1
package "$first" build && package "$second" build/upgrade || exit 1

cat >"$roots/train.py" <<'SCRIPT'
import cirron as ci
with ci.scope("seen"):
    ci.mark("loss", 0.5)
SCRIPT

# collectord as its unit starts it; then a member of the group records and reads, and another user does neither there.
cat >"$roots/serve.sh" <<'SCRIPT'
set -e
name=$1
collectord --foreground --user cirron --group cirron &
collector=$!
trap 'kill $collector' EXIT
i=0
until [ -S /run/cirron/collectord.sock ] || [ $i = 100 ]; do sleep 0.1; i=$((i + 1)); done
folder() { folder=$(mktemp -d) && chown "$1" "$folder" && cd "$folder"; }
folder member
runuser -u member -- cirron run --run-id "$name" -- python3 /root.train.py
runuser -u member -- cirron-query doctor
sleep 1
runuser -u member -- cirron-query sql "SELECT state FROM sessions WHERE run_id = '$name'" --format csv | grep -x finished
[ "$(runuser -u member -- cirron-query spans --name seen --format jsonl | wc -l)" -ge 1 ]
! runuser -u stranger -- cirron-query sessions --db /var/lib/cirron/traces.db 2>/dev/null
folder stranger
runuser -u stranger -- cirron run -- python3 /root.train.py
[ "$(runuser -u stranger -- cirron-query spans --name seen --format jsonl | wc -l)" = 1 ]
trap - EXIT
kill $collector
wait $collector
SCRIPT

boot() { # as a machine: what systemd makes of the units. Prints what it finds and powers off.
  cat >"$root/root/boot.sh" <<'SCRIPT'
exec >/root/boot.log 2>&1
set -x
systemctl is-enabled collectord.socket && systemctl is-active collectord.socket || exit 1
cd /home/member
runuser -u member -- cirron run --run-id boot -- python3 /root.train.py || exit 1
# The training may have ended before the service that its connection starts is up: what it recorded waits in the socket.
i=0; until systemctl is-active collectord.service || [ $i = 100 ]; do sleep 0.1; i=$((i + 1)); done
systemctl show collectord.service -p WatchdogTimestampMonotonic -p User -p NRestarts
sleep 1
runuser -u member -- cirron-query sessions
runuser -u member -- cirron-query sql "SELECT state FROM sessions WHERE run_id = 'boot'" --format csv | grep -x finished || exit 1
runuser -u member -- cirron-query doctor || exit 1
pid=$(systemctl show -P MainPID collectord.service)
kill -9 "$pid"; sleep 2
runuser -u member -- cirron run --run-id again -- python3 /root.train.py || exit 1
sleep 1
runuser -u member -- cirron-query sql "SELECT state FROM sessions WHERE run_id = 'again'" --format csv | grep -x finished || exit 1
systemctl stop collectord.service && [ -S /run/cirron/collectord.sock ] || exit 1
journalctl -b -u collectord.service --no-pager
echo BOOT-OK
SCRIPT
  cat >"$root/etc/systemd/system/boot-test.service" <<'UNIT'
[Unit]
After=multi-user.target collectord.socket
[Service]
Type=oneshot
ExecStart=-/bin/sh /root/boot.sh
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
UNIT
  inside env SYSTEMD_OFFLINE=1 systemctl enable boot-test.service collectord.socket || return 1
  rm -f "$root/root/boot.log"
  timeout 180 systemd-nspawn -q --register=no --keep-unit -D "$root" -b </dev/null
  cat "$root/root/boot.log"
  grep -qx BOOT-OK "$root/root/boot.log"
}

for suite; do
  root=$roots/$suite
  if [ ! -e "$root/usr/bin/apt-get" ]; then
    debootstrap --variant=minbase "$suite" "$root" "${MIRROR:-http://deb.debian.org/debian}" >"$roots/debootstrap.log" 2>&1 ||
      { echo "FAIL $suite: debootstrap"; tail -n 5 "$roots/debootstrap.log"; failed=$((failed + 1)); continue; }
  fi
  cp "$roots"/cirron_*.deb "$root/"
  cp "$roots/train.py" "$root/root.train.py"
  cp "$roots/serve.sh" "$root/root.serve.sh"
  cp /etc/resolv.conf "$root/etc/" 2>/dev/null
  mount --bind /proc "$root/proc"
  mount -t tmpfs tmpfs "$root/run"
  inside dpkg --purge cirron >/dev/null 2>&1

  check "prepare" inside sh -ec 'apt-get -q update && apt-get -q install -y --no-install-recommends python3-minimal util-linux
    id member || useradd -m member; id stranger || useradd -m stranger'
  check "install" inside apt-get -q install -y --no-install-recommends ./cirron_${first}_"$(dpkg --print-architecture)".deb
  check "user, group and folder are there" is 'id cirron && test "$(stat -c %U:%G:%a /var/lib/cirron)" = cirron:cirron:750'
  inside usermod -aG cirron member
  check "programs run" is "test \"\$(cirron --version)\" = 'cirron $first' && cirron-query --version && collectord --version"
  check "record as a service and privately" inside sh /root.serve.sh first
  check "upgrade" inside apt-get -q install -y --no-install-recommends ./cirron_${second}_"$(dpkg --print-architecture)".deb
  check "programs are new" is "test \"\$(cirron --version)\" = 'cirron $second'"
  check "the store is kept, and goes on" inside sh /root.serve.sh second
  check "both runs are in it" is 'test "$(cirron-query sessions --db /var/lib/cirron/traces.db --format jsonl | wc -l)" = 2'
  if [ "${BOOT-}" = 1 ]; then
    check "prepare to boot" inside apt-get -q install -y --no-install-recommends systemd-sysv
    umount -l "$root/run" "$root/proc" # a private collector may still be there
    check "boots, and records" boot
    mount --bind /proc "$root/proc"
    mount -t tmpfs tmpfs "$root/run"
  else
    echo "skip $suite: booting (BOOT=1)"
    skipped=$((skipped + 1))
  fi
  check "remove keeps the store" is 'dpkg --remove cirron && test -e /var/lib/cirron/traces.db && ! test -e /usr/bin/cirron'
  check "purge takes it away" is 'dpkg --purge cirron && ! test -e /var/lib/cirron && ! dpkg -s cirron'
  umount -l "$root/run" "$root/proc" # a private collector may still be there
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
