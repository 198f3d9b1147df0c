#!/bin/bash
# Builds Gradwire in the ways that `make check` does not, and runs the quick tests of each: with clang and no warnings,
# bare (without ZeroMQ, MPI and oneDNN), with AddressSanitizer and UndefinedBehaviorSanitizer, with ThreadSanitizer.
# Only if they are named: without one of the three (no-...), and `plain`, which try-on.sh builds on another system: as
# make check does, but warnings are errors.
#
#   builds.sh [JOBS [NAME...]]      names: plain clang bare no-zeromq no-mpi no-onednn asan tsan
#
# What a build and its tests print is shown if they fail.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(clang bare asan tsan)

# The tests that end within a second or two. Tests of the tool and of the house are left out: they test more than a
# build.
quick=(-L fast -E '^(cli|house|net|wire|python|cluster|example)_|@|^neon$|^mpich$')

for name in "${names[@]}"; do
    options=(-DCMAKE_BUILD_TYPE=Debug -DGW_BUILD_TESTS=ON)
    tests=("${quick[@]}")
    case $name in
    plain) options=(-DCMAKE_BUILD_TYPE=Release -DGW_BUILD_TESTS=ON -DCMAKE_C_FLAGS=-Werror) ;;
    clang) options+=(-DCMAKE_C_COMPILER=clang "-DCMAKE_C_FLAGS=-O1 -Werror") ;;
    bare) options+=(-DGW_TCP=OFF -DGW_MPI=off -DGW_BUILD_TRAIN=OFF) ;;
    no-zeromq) options+=(-DGW_TCP=OFF) ;;
    no-mpi) options+=(-DGW_MPI=off) ;;
    no-onednn) options+=(-DGW_BUILD_TRAIN=OFF) ;;
    asan) options+=(-DGW_SANITIZE=address,undefined -DCMAKE_C_FLAGS=-O1 -DGW_BUILD_TRAIN=OFF) ;;
    tsan)
        options+=(-DGW_SANITIZE=thread -DCMAKE_C_FLAGS=-O1 -DGW_BUILD_TRAIN=OFF)
        # ThreadSanitizer makes memory that is taken and given back slow. These take minutes of it, for few threads or
        # none; `make tsan` runs them.
        tests=("${quick[@]:0:3}" "${quick[3]}|^(probe|select|share|topk|uniform)_test\$")
        ;;
    *)
        echo "builds.sh: no build '$name'; there are plain, clang, bare, no-zeromq, no-mpi, no-onednn, asan, tsan" >&2
        exit 2
        ;;
    esac
    folder=build/builds/$name
    log=$(mktemp)
    begin=$SECONDS
    if ! { cmake -G Ninja -S . -B "$folder" "${options[@]}" && cmake --build "$folder" -j "$jobs" &&
        ctest --test-dir "$folder" -j "$jobs" --output-on-failure "${tests[@]}"; } >"$log" 2>&1; then
        cat "$log"
        echo "builds.sh: $name failed" >&2
        exit 1
    fi
    echo "$name: $(grep -m1 'tests passed' "$log"), $((SECONDS - begin)) s"
    rm "$log"
done
