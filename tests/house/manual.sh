#!/bin/bash
# The man pages have no mistakes that mandoc knows, and the page that is written by hand names every page that is made
# from a command's --help. Usage: manual.sh PAGE [FOLDER with the pages made from --help]
set -euo pipefail
command -v mandoc >/dev/null || { echo "skipped: mandoc is not installed"; exit 77; }
page=$1
folder=${2:-}
mandoc -T lint -W warning "$page"
[ -n "$folder" ] || { echo "left out: the pages of commands, as there is no tool"; exit 0; }
mandoc -T lint -W warning "$folder"/*.1
diff <(sed -n 's/^\.Xr \(gradwire-[a-z-]*\) 1.*/\1.1/p' "$page" | sort) <(cd "$folder" && printf '%s\n' *.1 | sort)
