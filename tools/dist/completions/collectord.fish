# fish completion of collectord. Words and their explanations come from its own help.

complete -c collectord -f
complete -c collectord -a '(collectord --help 2>/dev/null | string replace -rf \'^  (--[a-z][a-z-]*)(?: [^ ]+)? +(.*)$\' \'$1\t$2\')'
complete -c collectord -l socket -r -F
complete -c collectord -l db -r -F
complete -c collectord -l config -r -F
complete -c collectord -l user -x -a '(__fish_complete_users)'
complete -c collectord -l group -x -a '(__fish_complete_groups)'
