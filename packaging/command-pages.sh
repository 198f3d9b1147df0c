#!/bin/bash
# Makes a manual page of each command from its --help, so that page and program cannot differ: gradwire-train.1 and so
# on. gradwire.1 is written by hand. Usage: command-pages.sh TOOL SOURCE_DIR FOLDER
set -euo pipefail
tool=$1
source=$2
folder=$3
date=$(sed -n 's/^\.Dd //p' "$source/docs/gradwire.1")

page() { # NAME SUMMARY; the help on standard input
    cat <<HEAD
.\\" Made from \`${1//-/ } --help\`.
.Dd $date
.Dt ${1^^} 1
.Os
.Sh NAME
.Nm $1
.Nd $2
HEAD
    # The parts of a help: Usage, what the command does, Options, Example. Text keeps its lines. A line may begin with a
    # dot or an apostrophe, and have backslashes; to roff these mean something else.
    awk '
        function end() { if (open) print ".Ed"; open = 0 }
        function part(name) { end(); print ".Sh " name; print ".Bd -literal"; open = 1; blank = 0 }
        function line(text) {
            if (text == "") { blank = 1; return }
            if (blank) print ""
            blank = 0
            gsub(/\\/, "\\e", text)
            gsub(/-/, "\\-", text)
            if (text ~ /^[.\x27]/) text = "\\\\&" text
            print text
        }
        /^Usage: / { part("SYNOPSIS"); line(substr($0, 8)); in_usage = 1; next }
        in_usage && /^$/ { in_usage = 0; part("DESCRIPTION"); next }
        /^Options:$/ { part("OPTIONS"); next }
        /^Example:$/ { part("EXAMPLES"); next }
        { sub(/^       gradwire/, "gradwire"); line($0) }
        END { end() }'
    printf '.Sh SEE ALSO\n.Xr gradwire 1\n'
}

mkdir -p "$folder"
help=$("$tool" help)
while read -r command summary; do
    text=$("$tool" "$command" --help)
    page "gradwire-$command" "$summary" <<<"$text" >"$folder/gradwire-$command.1"
    # `Usage: gradwire bench codec|exchange` names commands of their own.
    for part in $(sed -n "1s/^Usage: gradwire $command \([a-z|]*|[a-z|]*\) .*/\1/p" <<<"$text" | tr '|' ' '); do
        "$tool" "$command" "$part" --help | page "gradwire-$command-$part" "$summary: $part" \
            >"$folder/gradwire-$command-$part.1"
    done
done < <(sed -n '/^Commands:$/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1 \2/p' <<<"$help" | grep -v '^help ')
