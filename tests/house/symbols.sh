#!/bin/bash
# Every symbol that the shared library defines for others begins with gw_. Usage: symbols.sh LIBRARY
set -euo pipefail
library=$1
names=$(nm --dynamic --defined-only --format=posix "$library" | awk '$2 != "A" { print $1 }')
[ -n "$names" ] || { echo "$library defines no symbols"; exit 1; }
strangers=$(grep -v '^gw_' <<<"$names" || true)
if [ -n "$strangers" ]; then
    echo "symbols without the prefix gw_:"
    echo "$strangers"
    exit 1
fi
echo "$(wc -l <<<"$names") symbols, all with the prefix gw_"
