#!/bin/bash
# The man pages have no mistakes that mandoc knows, and the page that is written by hand has every option that a
# command's --help has. Usage: manual.sh PAGE [FOLDER with the pages made from --help]
set -euo pipefail
command -v mandoc >/dev/null || { echo "skipped: mandoc is not installed"; exit 77; }
page=$1
folder=${2:-}
mandoc -T lint -W warning "$page"
[ -n "$folder" ] || { echo "left out: the pages of commands, as there is no tool"; exit 0; }
mandoc -T lint -W warning "$folder"/*.1
written=$(mandoc -T utf8 "$page" | sed $'s/.\b//g') # without what is written over, as col -b does; some systems lack it
faults=0
for command in "$folder"/*.1; do
    for option in $(sed -n '/^\.Sh OPTIONS/,/^\.Ed/s/^  \(\\-[^ ]*\) .*/\1/p' "$command" | tr -d '\\'); do
        if ! grep -qE -e "(^|[^[:alnum:]-])$option([^[:alnum:]-]|\$)" <<<"$written"; then
            echo "${page##*/} does not say what $option of ${command##*/} does"
            faults=1
        fi
    done
done
exit $faults
