# What run_check.sh and run_matrix.sh share: they run suites, sum up, and end with one line. To be sourced, by bash.
#
# Each suite ends with a line "N passed, N failed, N skipped"; one that prints none, is cut off by its time limit, or exits with an error
# while claiming that nothing failed, counts as one failed.
# shellcheck shell=bash

began=$SECONDS
running=() beside=() # suites, and what else has to be ended with us

open_logs() { # folder, and the word that begins each line
  logs=$1 word=$2
  mkdir -p "$logs"
  rm -f "$logs"/*.log "$logs"/*.sum "$logs"/*.failed "$logs"/*.said "$logs"/*.built "$logs/result"
  trap stop INT TERM
}
stop() {
  trap '' INT TERM
  kill "${running[@]}" "${beside[@]}" 2>/dev/null
  wait
  exit 130
}

# Runs a command as the only child of this process, a subshell, and ends it with that. What a shell starts in the background would ignore SIGINT.
guarded() {
  local child
  trap 'kill "$child"; wait "$child"; exit 143' TERM
  env --default-signal "$@" </dev/null &
  child=$!
  wait "$child"
}
# A test, or what stands for several: name, passed, failed, skipped. Standard input is said, in one piece, as others end at the same time.
count() {
  echo "$2 $3 $4" >"$logs/$1.sum"
  cat >"$logs/$1.said"
  flock "$logs" cat "$logs/$1.said"
  rm "$logs/$1.said"
}
sum_up() { # name status seconds
  local name=$1 status=$2 line p f s
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$logs/$name.log" | tail -n 1)
  IFS=' ,' read -r p _ f _ s _ <<<"${line:-0 passed, 0 failed, 0 skipped}"
  if [ -z "$line" ]; then
    line="no result (exit status $status)"
    f=1
  elif [ "$status" != 0 ] && [ "$f" = 0 ]; then
    line="$line, but exit status $status"
    f=1
  fi
  {
    printf '  %s %-16s %s (%d s)\n' "$word" "$name" "$line" "$3"
    if [ "$f" != 0 ]; then
      sed 's/^/    | /' "$logs/$name.log" | tail -n 80
      grep --no-group-separator -A 2 '^FAIL' "$logs/$name.log" | sed "s/^/    $name: /" | head -n 40 >"$logs/$name.failed"
    fi
    grep -E '^skip ' "$logs/$name.log" | sed 's/^/    /'
  } | count "$name" "$p" "$f" "$s"
}
suite() { # name seconds command...: in a subshell
  local name=$1 from=$SECONDS
  guarded timeout -k 10 "$2" "${@:3}" >"$logs/$name.log" 2>&1
  sum_up "$name" $? $((SECONDS - from))
}
failed() { # name, why
  echo "    $1: $2" >"$logs/$1.failed"
  echo "  $word $1: $2" | count "$1" 0 1 0
}
skipped() { # name, why
  echo "  $word $1: skipped, $2" | count "$1" 0 0 1
}

room() { # waits until fewer than $1 suites are running
  local pid left
  while [ ${#running[@]} -ge "$1" ]; do
    wait -n "${running[@]}"
    left=()
    for pid in "${running[@]}"; do
      kill -0 "$pid" 2>/dev/null && left+=("$pid")
    done
    running=("${left[@]}")
  done
}
start() { # how many may run then, and as suite
  room "$1"
  suite "${@:2}" &
  running+=($!)
}

# The end: what failed once more, the sums. Fails if anything did.
sums() {
  local p f s passed=0 failed=0 skipped=0 failures sum
  for sum in "$logs"/*.sum; do
    [ -e "$sum" ] || continue
    read -r p f s <"$sum"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  done
  failures=$(cat "$logs"/*.failed 2>/dev/null)
  [ -z "$failures" ] || printf '  %s what failed, once more:\n%s\n' "$word" "$failures"
  times >"$logs/times" # of this shell, so not in a substitution
  echo "  $word took $((SECONDS - began)) s (user and system time: $(tail -n 1 "$logs/times")); logs are in $logs"
  echo "$passed passed, $failed failed, $skipped skipped" | tee "$logs/result"
  [ "$failed" = 0 ]
}
