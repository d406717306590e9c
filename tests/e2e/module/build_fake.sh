#!/bin/bash
# Builds the cirron module on the fake stack (fake.c), as an extension module: BUILD/module/cirron.so
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=$BUILD/module
mkdir -p "$out"
# No -z defs and no version script: what the module takes from the rest of the agent has to be in fake.c, or the import fails.
${CC:-cc} -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-strict-aliasing -Wall -Wextra -Werror ${SAN_FLAGS:-} \
  -D_GNU_SOURCE -DCIRRON_VERSION='"test"' -I"$root" -shared -Wl,-z,now -o "$out/cirron.so.$$" \
  "$root"/agent/module*.c "$root"/agent/{doc,yaml*,json,toml*,config_*,env}.c "$root"/agent/py.c "$root"/agent/open.c "$root"/agent/clock.c "$root"/agent/cost.c "$here"/fake.c
mv "$out/cirron.so.$$" "$out/cirron.so" # another run of the suite may have it loaded
