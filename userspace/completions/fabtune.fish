# SPDX-License-Identifier: GPL-2.0-or-later
# Completion for fish: fabtune itself says what may come next.
function __fabtune_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    for line in ($before[1] __complete -- $before[2..-1] "$current" 2>/dev/null)
        switch $line
            case ':file'
                __fish_complete_path "$current"
            case ':directory'
                __fish_complete_directories "$current"
            case '*'
                echo $line
        end
    end
end
complete -c fabtune -f -a '(__fabtune_complete)'
