#!/bin/sh
# Makes build/cirron_VERSION_ARCH.deb of what was built, with dpkg-deb: B, VERSION, TRIPLET. Two builds of the same tree are the same.
# DEB_MAINTAINER says who stands for the package ("Name <address>"); else it is who made the last commit.
set -eu
cd "$(dirname "$0")/../../.."
for tool in dpkg-deb dpkg-shlibdeps dpkg-gencontrol strip; do
  command -v "$tool" >/dev/null || { echo "make deb needs $tool (package dpkg-dev, binutils)" >&2; exit 1; }
done
here=tools/dist/deb arch=$(dpkg --print-architecture)
maintainer=${DEB_MAINTAINER:-$(git log -1 --format='%an <%ae>' 2>/dev/null || echo 'nobody <nobody@localhost>')}
# The time of the last commit, else of the change log: the package must not depend on when it was made.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
export SOURCE_DATE_EPOCH LC_ALL=C
umask 022
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/debian/cirron

mkdir -p "$root/DEBIAN"
DESTDIR=$root PREFIX=/usr LIBDIR=/usr/lib/$TRIPLET tools/dist/install.sh
# The system's own python3 finds it without being told.
mkdir -p "$root/usr/lib/python3/dist-packages"
ln -s ../../"$TRIPLET"/cirron/python/cirron "$root/usr/lib/python3/dist-packages/cirron"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/lib/$TRIPLET"/cirron/*.so \
  "$root"/usr/bin/*

doc=$root/usr/share/doc/cirron
install -m 644 "$here/copyright" "$doc/copyright"
{
  printf 'cirron (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md in this folder.\n\n' "$VERSION"
  printf ' -- %s  %s\n' "$maintainer" "$(date -u -d "@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S +0000')"
} >"$stage/debian/changelog"
gzip -9n <"$stage/debian/changelog" >"$doc/changelog.gz"
find "$root/usr/share/man" -type f -exec gzip -9n {} +

cat >"$stage/debian/control" <<CONTROL
Source: cirron
Section: science
Priority: optional
Maintainer: $maintainer
Standards-Version: 4.6.2

Package: cirron
Architecture: any
Depends: \${shlibs:Depends}, passwd
Suggests: python3
Description: flight recorder for machine-learning training
 Records where the time of a PyTorch training goes, step by step, with no
 change to the script: a small library is preloaded into the process, a
 daemon keeps what it records in one SQLite file, and a query tool answers
 from it, also after the training was killed.
CONTROL
(
  cd "$stage"
  dpkg-shlibdeps -Tdebian/substvars debian/cirron/usr/lib/"$TRIPLET"/cirron/*.so debian/cirron/usr/bin/*
  dpkg-gencontrol -Tdebian/substvars -pcirron -Pdebian/cirron
)
for script in postinst prerm postrm; do
  install -m 755 "$here/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
out=$B/cirron_${VERSION}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$out" >/dev/null
echo "  DEB   $out"
