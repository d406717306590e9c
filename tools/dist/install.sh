#!/bin/sh
# What `make install` does: B is the build folder; DESTDIR, PREFIX and LIBDIR say where to. Systemd's files go below PREFIX/lib, where
# systemd looks for PREFIX=/usr and /usr/local; nothing is started or enabled.
set -eu
cd "$(dirname "$0")/../.."
prefix=$DESTDIR$PREFIX lib=$DESTDIR$LIBDIR dist=tools/dist

put() { # mode target-folder files...
  mode=$1 folder=$2
  shift 2
  install -d "$folder"
  install -m "$mode" "$@" "$folder/"
}

put 644 "$lib/cirron" "$B/libcirron_agent.so" "$B/libcirron_sqlite.so" "$B/libcirron_core.so"
# The core once more as the Python package cirron, for PYTHONPATH or a .pth file: the folders of its modules belong to the interpreter.
put 644 "$lib/cirron/python/cirron" "$dist"/python/cirron/*
ln -sf ../../libcirron_core.so "$lib/cirron/python/cirron/__init__.so"
put 755 "$prefix/bin" "$B/cirron" "$B/cirron-query" "$B/collectord"
for page in "$B"/man/*.[178]; do
  put 644 "$prefix/share/man/man${page##*.}" "$page"
done
put 644 "$prefix/share/doc/cirron" README.md CHANGELOG.md docs/*.md
put 644 "$prefix/share/doc/cirron/examples" "$dist"/examples/*.conf

put 644 "$prefix/lib/systemd/system" "$dist/collectord.socket"
sed "s;@bindir@;$PREFIX/bin;" "$dist/collectord.service.in" >"$prefix/lib/systemd/system/collectord.service"
chmod 644 "$prefix/lib/systemd/system/collectord.service"
install -d "$prefix/lib/sysusers.d" "$prefix/lib/tmpfiles.d"
install -m 644 "$dist/sysusers.conf" "$prefix/lib/sysusers.d/cirron.conf"
install -m 644 "$dist/tmpfiles.conf" "$prefix/lib/tmpfiles.d/cirron.conf"

bash=$prefix/share/bash-completion/completions
install -d "$bash"
install -m 644 "$dist/completions/cirron.bash" "$bash/cirron"
ln -sf cirron "$bash/cirron-query"
ln -sf cirron "$bash/collectord"
case $PREFIX in
/usr) zsh=vendor-completions ;; # a distribution's; site-functions is the administrator's
*) zsh=site-functions ;;
esac
put 644 "$prefix/share/zsh/$zsh" "$dist/completions/_cirron"
put 644 "$prefix/share/fish/vendor_completions.d" "$dist"/completions/*.fish
