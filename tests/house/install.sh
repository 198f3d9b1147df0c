#!/bin/bash
# Installs into a staging folder. Builds a small program there with what pkg-config says, against the shared library
# and against the static one. Usage: install.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1
source=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "$build" --prefix "$stage" >/dev/null

pc=$(find "$stage" -name gradwire.pc)
package=gradwire
pkg() { PKG_CONFIG_PATH=$(dirname "$pc") pkg-config "$@" $package; }
libdir=$(pkg --variable=libdir)
# The .pc file names the folder to which it was installed, whatever prefix was configured.
[ "$(realpath "$libdir")" = "$(realpath "$(dirname "$pc")/..")" ]

cat >"$stage/program.c" <<'PROGRAM'
#include <gradwire/gradwire.h>
#include <stdio.h>
int main(void) { return printf("gradwire %s\n", gw_version()) < 0; }
PROGRAM
# shellcheck disable=SC2046 # the flags are words
gcc -std=c17 "$stage/program.c" $(pkg --cflags --libs) -o "$stage/shared"
unset LD_LIBRARY_PATH # programs find the library by themselves
"$stage/shared"
# shellcheck disable=SC2046
gcc -std=c17 "$stage/program.c" $(pkg --static --cflags) "$libdir/libgradwire.a" \
    $(pkg --static --libs | sed 's/-lgradwire//') -o "$stage/static"
"$stage/static"
! ldd "$stage/static" | grep libgradwire
# The commands of two pages build the examples. What their folder with the .pc files is called depends on the system.
built_as() { # PAGE FIRST_WORDS PROGRAM
    mkdir -p "$stage/as"
    cp "$source/examples/$3.c" "$stage/as/program.c"
    commands=$(sed -n "/^    $2/,/^\$/s/^    //p" "$source/$1")
    commands=${commands//PREFIX\/lib\/pkgconfig/$(dirname "$pc")}
    [ -n "$commands" ]
    (cd "$stage/as" && PKG_CONFIG_PATH=$(dirname "$pc") bash -euc "$commands")
}
built_as docs/c.md 'export PKG_CONFIG_PATH' threads
"$stage/as/a.out"

version=$(pkg --modversion)
[ "$("$stage/static")" = "$("$stage/shared")" ]
case $("$stage/static") in
    "gradwire $version") ;;
    *) echo "the library and gradwire.pc differ in version"; exit 1 ;;
esac
if [ -x "$stage/bin/gradwire" ]; then
    "$stage/bin/gradwire" --version
    [ -f "$stage/share/man/man1/gradwire.1" ]
fi

# If the mpi link was built, use it from outside. Only the public functions of libgradwire are there.
if [ -f "$(dirname "$pc")/gradwire-mpi.pc" ]; then
    package=gradwire-mpi
    cat >"$stage/mpi.c" <<'PROGRAM'
#include <gradwire/gradwire.h>
#include <gradwire/link_mpi.h>
#include <stdio.h>
int main(void)
{
    gw_link link;
    gw_status status = gw_link_mpi_create(NULL, MPI_COMM_WORLD, &link); /* too early */
    printf("%s\n", gw_last_error());
    return status != GW_ERR_ORDER;
}
PROGRAM
    # shellcheck disable=SC2046
    gcc -std=c17 "$stage/mpi.c" $(pkg --cflags --libs) -o "$stage/mpi_shared"
    "$stage/mpi_shared"
    built_as docs/clusters.md 'cc -c program.c' mpi_average
    # shellcheck disable=SC2046
    gcc -std=c17 "$stage/mpi.c" $(pkg --cflags) "$libdir/libgradwire_mpi.a" "$libdir/libgradwire.a" \
        $(pkg --libs-only-L) $(pkg --static --libs-only-l | sed 's/-lgradwire_mpi//; s/-lgradwire//') \
        -o "$stage/mpi_static"
    "$stage/mpi_static"
fi
