# bash completion for scoped-lane: subcommands and options as the program itself lists them, so that this never goes stale.

_scoped_lane_first_words() { # of the indented lines of a --help
    sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'
}

_scoped_lane_options() {
    grep -E '^ +-' | grep -oE -- '(^ +|, )--?[a-z][a-z-]*' | grep -oE -- '-.*'
}

_scoped_lane() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]} i
    COMPREPLY=()
    if ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ $previous == help ]]; }; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" --help 2>/dev/null | _scoped_lane_first_words) help --help --version" -- "$current")
        return
    fi
    if [[ ${COMP_WORDS[1]} == run ]]; then # what follows is another program's command line
        for ((i = 2; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            --)
                i=$((i + 1))
                break
                ;;
            -o | --output | --rundir | --schema) i=$((i + 1)) ;;
            -*) ;;
            *) break ;;
            esac
        done
        if ((i < COMP_CWORD)) || [[ ${COMP_WORDS[COMP_CWORD - 1]} == -- ]]; then
            declare -F _command_offset >/dev/null && _command_offset "$i"
            return
        fi
    fi
    case $previous in
    --rundir)
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        return
        ;;
    --schema)
        mapfile -t COMPREPLY < <(compgen -W "2 3" -- "$current")
        return
        ;;
    -o | --output | --socket)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --sort)
        mapfile -t COMPREPLY < <(compgen -W "cpu age calls name" -- "$current")
        return
        ;;
    --pid | --rank | --run | --region | --kind | --state | --interval | --filter) return ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" "${COMP_WORDS[1]}" --help 2>/dev/null | _scoped_lane_options)" -- "$current")
    elif [[ ${COMP_WORDS[1]} == run ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

complete -o filenames -F _scoped_lane scoped-lane
