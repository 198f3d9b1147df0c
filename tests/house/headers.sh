#!/bin/bash
# Every public header compiles by itself, as C17 and as C++17, without warnings.
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
