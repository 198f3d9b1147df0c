#!/bin/bash
# Every public header compiles by itself, as C17 and as C++17, without warnings. A program that does not look at a
# status gets a warning from the compiler.
# Usage: headers.sh INCLUDE_DIR [MPI_INCLUDE_DIR...]
set -euo pipefail
include=$1
shift
flags=(-I"$include" "${@/#/-isystem}" -fsyntax-only -Wall -Wextra -Wpedantic -Werror)
for header in "$include"/gradwire/*.h; do
    if [ "${header##*/}" = link_mpi.h ] && [ $# = 0 ]; then
        echo "left out: link_mpi.h, as there is no MPI here"
        continue
    fi
    line="#include <gradwire/${header##*/}>"
    echo "$line"
    gcc -std=c17 -Wstrict-prototypes "${flags[@]}" -x c - <<<"$line"
    if command -v g++ >/dev/null; then
        g++ -std=c++17 "${flags[@]}" -x c++ - <<<"$line"
    fi
done

# Every function that returns a status must be checked, but gw_fail.
if grep -h "gw_status gw_" "$include"/gradwire/*.h | grep "^GW_API" | grep -v GW_MUST_CHECK; then
    echo "these functions lack GW_MUST_CHECK"
    exit 1
fi
careless='#include <gradwire/gradwire.h>
void f(gw_exchange *e);
void f(gw_exchange *e) { gw_exchange_wait(e, 0); }'
for compiler in "gcc -std=c17 -x c" "g++ -std=c++17 -x c++"; do
    command -v "${compiler%% *}" >/dev/null || continue
    # shellcheck disable=SC2086
    if $compiler -I"$include" -Werror -c -o /dev/null - <<<"$careless" 2>/dev/null; then
        echo "$compiler says nothing of a status that nobody looks at"
        exit 1
    fi
done
