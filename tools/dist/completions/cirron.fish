# fish completion of cirron. Words and their explanations come from the programs' own help.

function __cirron_options
    $argv --help 2>/dev/null | string replace -rf '^  (--[a-z][a-z-]*)(?: [^ ]+)? +(.*)$' '$1\t$2'
end

function __cirron_commands
    cirron-query --help 2>/dev/null | sed -n '/^Commands:/,/^$/p' | string replace -rf '^  ([a-z][a-z-]*)(?: [^ ]+)? +(.*)$' '$1\t$2'
end

function __cirron_verb # the first word that is no option
    for word in (commandline -opc)[2..]
        string match -q -- '-*' $word; or begin
            echo $word
            return
        end
    end
end

complete -c cirron -f
complete -c cirron -n 'test -z (__cirron_verb)' -a 'run\t"Become a command, with the agent loaded into it" (__cirron_commands)'
complete -c cirron -n 'test -z (__cirron_verb)' -l help -d 'Help'
complete -c cirron -n 'test -z (__cirron_verb)' -l version -d 'The version'
complete -c cirron -n '__cirron_verb | string match -q run; and string match -q -- "-*" (commandline -ct)' -a '(__cirron_options cirron run)'
complete -c cirron -n '__cirron_verb | string match -q run; and not string match -q -- "-*" (commandline -ct)' -a '(__fish_complete_subcommand --fcs-skip=2)'
complete -c cirron -n '__cirron_verb | string match -qv run' -a '(__cirron_options cirron-query (__cirron_verb))'
complete -c cirron -n '__cirron_verb | string match -qx snapshot' -a now
