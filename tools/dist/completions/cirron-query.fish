# fish completion of cirron-query. Words and their explanations come from its own help.

function __cirron_query_verb
    for word in (commandline -opc)[2..]
        string match -q -- '-*' $word; or begin
            echo $word
            return
        end
    end
end

function __cirron_query_options
    cirron-query $argv --help 2>/dev/null | string replace -rf '^  (--[a-z][a-z-]*)(?: [^ ]+)? +(.*)$' '$1\t$2'
end

function __cirron_query_commands
    cirron-query --help 2>/dev/null | sed -n '/^Commands:/,/^$/p' | string replace -rf '^  ([a-z][a-z-]*)(?: [^ ]+)? +(.*)$' '$1\t$2'
end

complete -c cirron-query -f
complete -c cirron-query -n 'test -z (__cirron_query_verb)' -a '(__cirron_query_commands)'
complete -c cirron-query -a '(__cirron_query_options (__cirron_query_verb))'
complete -c cirron-query -l db -r -F -d 'The store'
complete -c cirron-query -l format -x -a 'table json jsonl csv'
complete -c cirron-query -l check -x -a 'complete finished finite'
complete -c cirron-query -l kind -x -a 'user session epoch eval step data_load forward backward optimizer_step batch fetch collective weight gradient'
complete -c cirron-query -n '__cirron_query_verb | string match -qx snapshot' -a now
