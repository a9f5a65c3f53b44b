"""The scripts that give shells completion. Each asks `supervisor _complete`, the verb that no list shows."""

from __future__ import annotations

from collections.abc import Mapping

FILES = ":files"
"""The last line of an answer where names of files may stand, too. No word that is offered begins with a colon."""

BETWEEN = "\x1f"
"""Stands between the words that a shell sends."""

_BASH = """\
# Completion of supervisor for bash:  eval "$(supervisor completions bash)"
_supervisor_complete() {
    local line files=
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = ":files" ]; then files=1; else COMPREPLY+=("$line"); fi
    done < <(SUPERVISOR_LINE=${COMP_LINE:0:COMP_POINT} "${COMP_WORDS[0]/#\\~/$HOME}" _complete 2>/dev/null)
    if [ -n "$files" ]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
    fi
}
complete -F _supervisor_complete supervisor llama-supervisor
"""

_ZSH = """\
# Completion of supervisor for zsh, after compinit:  eval "$(supervisor completions zsh)"
_supervisor_complete() {
    local typed=$words[1] found files=
    local -a offered
    typed=${typed/#\\~/$HOME}
    for found in "${(@f)$(SUPERVISOR_WORDS="${(pj:\\x1f:)words[2,CURRENT]}" "$typed" _complete 2>/dev/null)}"; do
        if [[ $found == ":files" ]]; then files=1; elif [[ -n $found ]]; then offered+=("$found"); fi
    done
    (( $#offered )) && compadd -- $offered
    [[ -n $files ]] && _files
}
compdef _supervisor_complete supervisor llama-supervisor
"""

_FISH = """\
# Completion of supervisor for fish:  supervisor completions fish | source
function __supervisor_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l typed (string replace -r '^~' $HOME -- $before[1])
    set -lx SUPERVISOR_WORDS (string join \\x1f -- $before[2..-1] "$current")
    for found in ($typed _complete 2>/dev/null)
        if test "$found" = ":files"
            __fish_complete_path "$current"
        else
            echo $found
        end
    end
end
complete -c supervisor -f -a '(__supervisor_complete)'
complete -c llama-supervisor -f -a '(__supervisor_complete)'
"""

SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""The script of each shell, to be evaluated by it."""
