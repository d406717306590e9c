# bash completion of cirron, cirron-query and collectord. Words come from the programs' own help, so they are those of the version
# that is installed.

_cirron_options() { "$@" --help 2>/dev/null | sed -n 's/^  \(--[a-z][a-z-]*\).*/\1/p'; }
_cirron_commands() { cirron-query --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p'; }

# What may follow an option that takes a value. False: the option takes none.
_cirron_value() { # option current
  case $1 in
  --format) COMPREPLY=($(compgen -W "table json jsonl csv" -- "$2")) ;;
  --kind) COMPREPLY=($(compgen -W "user session epoch eval step data_load forward backward optimizer_step batch fetch collective weight gradient" -- "$2")) ;;
  --check) COMPREPLY=($(compgen -W "complete finished finite" -- "$2")) ;;
  --cpu-time) COMPREPLY=($(compgen -W "auto on off" -- "$2")) ;;
  --transport) COMPREPLY=($(compgen -W "auto socket" -- "$2")) ;;
  --user) COMPREPLY=($(compgen -u -- "$2")) ;;
  --group) COMPREPLY=($(compgen -g -- "$2")) ;;
  --session) COMPREPLY=($(compgen -W "last $(cirron-query sessions --format csv 2>/dev/null | sed -n '2,$s/,.*//p')" -- "$2")) ;;
  --db | --socket | --agent | --config) COMPREPLY=($(compgen -f -- "$2")) ;;
  --run-id | --module-depth | --ring-bytes | --rank | --limit | --name | --depth | --last | --epoch | --timeout | --before | --keep | --idle-exit | --max-* | --keep-days)
    COMPREPLY=() ;;
  *) return 1 ;;
  esac
}

_cirron_query() { # current, words before it
  local current=$1 word command=
  shift
  for word; do
    case $word in -*) ;; *) _cirron_commands | grep -qx -e "$word" && command=$word && break ;; esac
  done
  case $current in
  -*) COMPREPLY=($(compgen -W "$(_cirron_options cirron-query $command)" -- "$current")) ;;
  *)
    if [ -z "$command" ]; then
      COMPREPLY=($(compgen -W "$(_cirron_commands)" -- "$current"))
    elif [ "$command" = snapshot ]; then
      COMPREPLY=($(compgen -W now -- "$current"))
    fi ;;
  esac
}

# cirron run: options, then a command with completion of its own.
_cirron_run() {
  local i=2
  while [ "$i" -lt "$COMP_CWORD" ]; do
    case ${COMP_WORDS[i]} in
    --) i=$((i + 1)) && break ;;
    --agent | --socket | --run-id | --module-depth | --cpu-time | --ring-bytes | --transport) i=$((i + 2)) ;;
    -*) i=$((i + 1)) ;;
    *) break ;;
    esac
  done
  if [ "$i" -lt "$COMP_CWORD" ] || [ "${COMP_WORDS[COMP_CWORD - 1]}" = -- ]; then
    if declare -F _command_offset >/dev/null; then
      _command_offset "$i"
    else
      COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
  elif [[ ${COMP_WORDS[COMP_CWORD]} == -* ]]; then
    COMPREPLY=($(compgen -W "$(_cirron_options cirron run) --" -- "${COMP_WORDS[COMP_CWORD]}"))
  else
    COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
  fi
}

_cirron() {
  local current=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]##*/}
  COMPREPLY=()
  if [ "$COMP_CWORD" -gt 1 ] && _cirron_value "${COMP_WORDS[COMP_CWORD - 1]}" "$current"; then
    return
  fi
  case $program in
  collectord) COMPREPLY=($(compgen -W "$(_cirron_options collectord)" -- "$current")) ;;
  cirron-query) _cirron_query "$current" "${COMP_WORDS[@]:1:COMP_CWORD-1}" ;;
  cirron)
    if [ "$COMP_CWORD" = 1 ]; then
      COMPREPLY=($(compgen -W "run $(_cirron_commands) --help --version" -- "$current"))
    elif [ "${COMP_WORDS[1]}" = run ]; then
      _cirron_run
    else
      _cirron_query "$current" "${COMP_WORDS[@]:1:COMP_CWORD-1}"
    fi ;;
  esac
}
complete -F _cirron cirron cirron-query collectord
