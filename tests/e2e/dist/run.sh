#!/bin/sh
# What lies around the programs: privileges and service manager, `cirron`, man pages, completions, units, package, doctor.
cd "$(dirname "$0")" || exit 1
make -s -C ../../.. man || exit 1 # once: two installations at a time would both make them
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=..:../collectord exec python3 suite.py -j 2 "$@"
