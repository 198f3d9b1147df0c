#!/bin/bash
# An option that is switched off after a first configuration is off everywhere. Usage: options.sh SOURCE_DIR
set -euo pipefail
source=$1
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
configure() { cmake -S "$source" -B "$build" -G Ninja -DGW_MPI=off -DGW_BUILD_TRAIN=OFF "$@" >/dev/null; }
targets() { ninja -C "$build" -t targets all; }
of_tcp='((tcp|net)_[a-z_]*test|pserver_hostile_test|servers_test):'
of_tcp+='|src/(net|link/tcp|pserver/(server|client))/[a-z_]*\.c\.o:'

# The list goes into a variable, not into a pipe. A grep that has found enough would end ninja, and that would count as
# ninja's failure.
configure
found=$(targets)
if ! grep -qE "$of_tcp" <<<"$found"; then
    echo "skipped: OpenSSL is not installed, so there is nothing to switch off"
    exit 77
fi
grep -q -e '-lssl' "$build/gradwire.pc"
configure -DGW_TCP=OFF
found=$(targets)
if grep -E "$of_tcp" <<<"$found" || grep -e '-lssl' "$build/gradwire.pc"; then
    echo "this is still there with -DGW_TCP=OFF"
    exit 1
fi
