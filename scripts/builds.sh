#!/bin/bash
# Builds Gradwire in the ways that `make check` does not, and runs the quick tests of each: bare (without OpenSSL, MPI
# and oneDNN), by clang with AddressSanitizer and UndefinedBehaviorSanitizer, by gcc with ThreadSanitizer.
# Only if they are named: without one of the three (no-...), and `plain`, which try-on.sh builds on another system: as
# make check does. Warnings are errors.
#
#   builds.sh [JOBS [NAME...]]      names: plain bare no-tcp no-mpi no-onednn asan tsan
#
# What a build and its tests print is shown if they fail.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(bare asan tsan)

# The tests that end within a second or two. Tests of the tool and of the house are left out: they test more than a
# build.
left_out='^(cli|house|wire|python|cluster|example)_|^net_(kill|weather|secrecy|faults)$|@|^neon$|^mpich$'
# The long ones with a sanitizer. `make asan` and `make tsan` run them.
left_out_by_sanitizers="$left_out|^(probe|select|share|merge|model|convex|data)_test$|^exchange_mpi_([1247]|once_.*)$"
# What the library says without OpenSSL, MPI and oneDNN.
with_stubs='^(creates|exchange|local|nonsense|once|together|wire_choice)_'
# Those with threads. ternary's stand for all codecs: each hands its chunks to threads by the same function.
with_threads='^(base|buffers|exchange|leave|farewell|local|once|pserver|servers|tcp|ternary|together|wire)_'

for name in "${names[@]}"; do
    # Many tests wait for most of their time, so one more runs than there are cores.
    # Debug builds check with assert; their tables of lines are enough for a sanitizer's report, and quick to make.
    options=(-DGW_BUILD_TESTS=ON -DGW_BUILD_SLOW_TESTS=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-g1)
    flags=-Werror
    tests=(-L fast -E "$left_out")
    case $name in
    plain) options+=(-DCMAKE_BUILD_TYPE=Release) ;;
    bare)
        options+=(-DGW_TCP=OFF -DGW_MPI=off -DGW_BUILD_TRAIN=OFF "-DGW_ONLY_TESTS=$with_stubs")
        ;;
    no-tcp) options+=(-DGW_TCP=OFF) ;;
    no-mpi) options+=(-DGW_MPI=off) ;;
    no-onednn) options+=(-DGW_BUILD_TRAIN=OFF) ;;
    asan)
        # clang would put its runtime into each of 134 programs, which takes longer than to link the rest.
        linking="-shared-libsan -Wl,-rpath,$(clang -print-runtime-dir) -fuse-ld=gold"
        options+=(-DGW_SANITIZE=address,undefined -DCMAKE_C_COMPILER=clang "-DCMAKE_EXE_LINKER_FLAGS=$linking")
        flags+=" -O1"
        tests=(-L fast -E "$left_out_by_sanitizers")
        ;;
    tsan)
        options+=(-DGW_SANITIZE=thread -DGW_BUILD_TRAIN=OFF -DGW_BUILD_TOOL=OFF "-DGW_ONLY_TESTS=$with_threads")
        flags+=" -O1"
        tests=(-L fast -E "$left_out_by_sanitizers|mpi_")
        ;;
    *)
        echo "builds.sh: no build '$name'; there are plain, bare, no-tcp, no-mpi, no-onednn, asan, tsan" >&2
        exit 2
        ;;
    esac
    folder=build/builds/$name
    log=$(mktemp)
    begin=$SECONDS
    if ! { cmake -G Ninja -S . -B "$folder" "${options[@]}" "-DCMAKE_C_FLAGS=$flags" &&
        cmake --build "$folder" -j "$jobs" &&
        ctest --test-dir "$folder" -j $((jobs + 1)) --output-on-failure "${tests[@]}"; } >"$log" 2>&1; then
        cat "$log"
        echo "builds.sh: $name failed" >&2
        exit 1
    fi
    echo "$name: $(grep -m1 'tests passed' "$log"), $((SECONDS - begin)) s"
    rm "$log"
done
