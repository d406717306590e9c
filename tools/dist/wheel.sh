#!/bin/sh
# Makes build/cirron-VERSION-cp38-abi3-manylinux_X_Y_ARCH.whl of what was built: B, VERSION, TRIPLET. Needs python3, objdump, strip.
#
# The agent is one file for every CPython from 3.8 on: it uses no header of any of them. X_Y is the glibc that it asks for. Two builds
# of the same tree are the same.
set -eu
cd "$(dirname "$0")/../.."
for tool in python3 objdump strip; do
  command -v "$tool" >/dev/null || { echo "make wheel needs $tool" >&2; exit 1; }
done
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC0
umask 022
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
package=$stage/cirron info=$stage/cirron-$VERSION.dist-info

mkdir -p "$package" "$info"
# Twice the same: zip files know no links, and the preloaded object looks for the core by its name.
install -m 755 "$B/libcirron_core.so" "$package/__init__.so"
install -m 755 "$B/libcirron_core.so" "$B/libcirron_agent.so" "$package/"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$package"/*.so
install -m 644 tools/dist/python/cirron/__init__.pyi tools/dist/python/cirron/py.typed "$package/"
install -m 644 LICENSE "$info/LICENSE"

# The manylinux tags begin with glibc 2.5; AArch64 has nothing before 2.17.
glibc=$({ echo 2.5; objdump -p "$package"/*.so | sed -n 's/.* GLIBC_\([0-9]*\.[0-9]*\).*/\1/p'; } | sort -V | tail -1)
tag=cp38-abi3-manylinux_$(echo "$glibc" | tr . _)_${TRIPLET%%-*}

cat >"$info/METADATA" <<METADATA
Metadata-Version: 2.1
Name: cirron
Version: $VERSION
Summary: Flight recorder for machine-learning training
License: Apache-2.0
Platform: linux
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: Implementation :: CPython
Classifier: Typing :: Typed
Requires-Python: >=3.8
License-File: LICENSE
Description-Content-Type: text/plain

Records where the time of a PyTorch training goes, step by step. \`import cirron\` in a script starts it; so does preloading
libcirron_agent.so, which lies in the package's folder, with no change to the script. The collector and the programs that
read what it stored are not in this package.
METADATA
cat >"$info/WHEEL" <<WHEEL
Wheel-Version: 1.0
Generator: cirron
Root-Is-Purelib: false
Tag: $tag
WHEEL
python3 - "$stage" "$info" <<'RECORD'
import base64, hashlib, os, pathlib, sys
stage, info = map(pathlib.Path, sys.argv[1:])
lines = []
for path in sorted(p for p in stage.rglob("*") if p.is_file()):
    data = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    lines.append(f"{path.relative_to(stage)},sha256={digest},{len(data)}\n")
lines.append(f"{info.name}/RECORD,,\n")
(info / "RECORD").write_text("".join(lines))
RECORD
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

out=$B/cirron-$VERSION-$tag.whl
rm -f "$out.new"
python3 -m zipfile -c "$out.new" "$package" "$info"
mv "$out.new" "$out"
echo "  WHEEL $out"
