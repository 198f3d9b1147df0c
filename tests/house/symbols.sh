#!/bin/bash
# A shared library defines for others exactly the functions of its list, which is Debian's symbols file, with their
# versions. Usage: symbols.sh LIBRARY LIST
set -euo pipefail
library=$1
list=$2
export LC_ALL=C
# Each line is name@version. For the version itself it is GRADWIRE_0@GRADWIRE_0.
defined=$(nm --dynamic --defined-only --with-symbol-versions --format=posix "$library" |
    awk '{ sub("@@", "@", $1); print $2 == "A" ? $1 "@" $1 : $1 }' | sort)
listed=$(sed -n 's/^ \([^ ]*\) .*/\1/p' "$list" | sort)
soname=$(objdump -p "$library" | sed -n 's/^ *SONAME *//p')
if [ "$(sed -n '1s/ .*//p' "$list")" != "$soname" ]; then
    echo "the library's SONAME is $soname, and $list begins with another; docs/abi.md says what a new SONAME takes"
    exit 1
fi
strangers=$(grep -v -e '^gw_' -e '^GRADWIRE_' <<<"$defined" || true)
if [ -n "$strangers" ]; then
    echo "symbols without the prefix gw_:"
    echo "$strangers"
    exit 1
fi
gone=$(comm -13 <(echo "$defined") <(echo "$listed"))
if [ -n "$gone" ]; then
    echo "$list has these, and $library does not:"
    echo "$gone"
    echo "Programs that call them would no longer start. Put them back, or raise GW_SOVERSION (docs/abi.md)."
fi
new=$(comm -23 <(echo "$defined") <(echo "$listed"))
if [ -n "$new" ]; then
    echo "$library has these, and $list does not:"
    echo "$new"
    echo "Add a line ' NAME@VERSION RELEASE' for each to the list if programs outside shall call them; RELEASE is the"
    echo "version of Gradwire that brings them. Else take GW_API from their declaration; functions with GW_CLONES"
    echo "become static, or are named in packaging/gradwire.map.in."
fi
[ -z "$gone$new" ] || exit 1
echo "$(wc -l <<<"$defined") symbols of $soname, as listed"
