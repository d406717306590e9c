#!/bin/sh
# Makes a manual page of its source: man.sh SOURCE VERSION [PROGRAM [WORD ...]]
#
# The source is mdoc. Lines of the form "@WHAT" stand for what has to agree with the programs and is taken from them:
#   @options     the options that PROGRAM WORD ... --help lists
#   @commands    its commands, and which options each of them takes
#   @settings    the table of settings in docs/settings.md
# A page whose program lists nothing is no page: it fails.
set -eu
source=$1 version=$2
shift 2
here=$(dirname "$0")

help() { "$program" "$@" --help; }

# Text as roff takes it: no line begins with a control character, no backslash is one.
options() {
  awk '
    function text(s) { gsub(/\\/, "\\e", s); if (s ~ /^[.\047]/) s = "\\&" s; return s }
    /^  --/ {
      sub(/^ +--/, ""); name = $1; rest = substr($0, length(name) + 1); value = ""
      if (rest ~ /^ [^ ]/) { value = $2; rest = substr(rest, length(value) + 2) }
      sub(/^ +/, "", rest)
      printf ".It Fl -%s%s\n%s%s\n", name, value == "" ? "" : " Ar " value, text(rest), rest ~ /[.]$/ ? "" : "."
      n++
    }
    END { exit n ? 0 : 1 }'
}

commands() {
  help | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' | while read -r name; do
    help "$name" | awk -v name="$name" '
      function text(s) { gsub(/\\/, "\\e", s); if (s ~ /^[.\047]/) s = "\\&" s; return s }
      NR == 1 { args = $0; sub(/^[^ ]+ [^ ]+ [^ ]+ ?/, "", args); sub(/ ?\[OPTION \.\.\.\]$/, "", args); next }
      NR == 2 { printf ".It Cm %s%s\n%s\n", name, args == "" ? "" : " " (args ~ /^\[/ ? "Op Ar " substr(args, 2, length(args) - 2) : "Ar " args), text($0); next }
      /^Options of this command:/ { mine = 1; next }
      /^Common options:/ { mine = 0; common = 1 }
      mine && /^  --/ { list = list (list == "" ? "" : " ,\n.Fl -") substr($1, 3) }
      !mine && !common && /^  / && NF { example = example sprintf("%s\n", text(substr($0, 3))); next }
      !mine && !common && NF { if (example != "") { printf ".Bd -literal -offset indent -compact\n%s.Ed\n", example; example = "" } print text($0) }
      END {
        if (example != "") printf ".Bd -literal -offset indent -compact\n%s.Ed\n", example
        if (list != "") printf "Takes\n.Fl -%s .\n", list
      }'
  done
}

settings() {
  awk -F ' *[|] *' '
    /^\| `CIRRON_/ {
      for (i = 2; i <= 5; i++) { gsub(/`/, "", $i); gsub(/\\/, "\\e", $i) }
      printf ".It Ev %s\n%s.\nAllowed: %s. Default: %s.\n", $2, $5, $3, $4
      n++
    }
    END { exit n ? 0 : 1 }' "$here/../../docs/settings.md"
}

program=${1-}
[ $# = 0 ] || shift
while IFS= read -r line; do
  case $line in
  @options) help "$@" | options ;;
  @commands) commands ;;
  @settings) settings ;;
  *@version@*) printf '%s\n' "$line" | sed "s/@version@/$version/g" ;;
  *) printf '%s\n' "$line" ;;
  esac
done <"$source"
