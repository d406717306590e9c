#!/bin/bash
# Records as messages: what only that way can show (suite.py), and then a choice of the other suites' tests with CIRRON_TRANSPORT=socket.
cd "$(dirname "$0")" || exit 1
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=..
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# The first and the last interpreter: how records travel has nothing to do with the version.
read -r -a pythons <<<"${PYTHONS:-python3}"
export PYTHONS="${pythons[0]}"
[ ${#pythons[@]} -gt 1 ] && PYTHONS+=" ${pythons[-1]}"
status=0
python3 suite.py -j 2 "$@" | tee -a "$out" || status=1
if [ $# = 0 ]; then
  export TRANSPORT=socket
  again() { # suite, pattern
    "../$1/run.sh" -k "$2" | sed -E "s/^(ok  |FAIL|skip) /&$1: /" | tee -a "$out"
    [ "${PIPESTATUS[0]}" = 0 ] || status=1
  }
  again kills 'collector_is_killed.at once|both_are_killed'
  again guest 'listener|full_backlog|^at_once|more_than_there|daemon_threads|forks_at_bad|stopped_by'
  again module 'stored|fork_inside'
  again observe '^(forked|ends)'
  again torch 'plain_loop|workers_report_what|collector_dies'
fi
awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s }' "$out"
exit $status
