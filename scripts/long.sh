#!/bin/bash
# Runs what takes hours: all tests with AddressSanitizer and UndefinedBehaviorSanitizer, all with ThreadSanitizer, every
# fuzzer, and changes in every folder that its tests must notice. Writes the table of docs/long.md.
#
#   long.sh [JOBS [SECONDS]]       SECONDS: of each fuzzer; GRADWIRE_CHANGES: changes a folder (default 40)
#
# It goes on after a failure, and fails at the end.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)} seconds=${2:-600} changes=${GRADWIRE_CHANGES:-40}
folders=(src/base src/wire src/codec src/zmq src/link src/owner src/optimizer src/exchange src/pserver src/plan
         src/probe train/net train/data train/disk train/run)
logs=build/long
mkdir -p "$logs"
failed=0
rows=()

run() { # NAME WORDS...: what its last lines say becomes a row
    local name=$1 begin=$SECONDS result
    shift
    echo "$name ..." >&2
    if "$@" >"$logs/${name//[^a-z]/-}.log" 2>&1; then result=well; else result=FAILED failed=1; fi
    local said
    said=$(grep -hE 'tests passed|changes, |fuzzer' "$logs/${name//[^a-z]/-}.log" | tail -1 | tr '|' '/')
    rows+=("| $name | $result | ${said:-} | $(((SECONDS - begin) / 60)) min |")
    echo "${rows[-1]}" >&2
}

run "make asan" make asan JOBS="$jobs"
run "make tsan" make tsan JOBS="$jobs"
run "make fuzz, $seconds s each" make fuzz SECONDS="$seconds"
for folder in "${folders[@]}"; do
    run "changes in $folder" scripts/mutate.py "$folder" --changes "$changes" --keep "$logs/${folder//\//-}.survivors"
done

machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
    sed '/^| what/,$d' docs/long.md
    echo "| what | ended | it said | took |"
    echo "|---|---|---|---|"
    printf '%s\n' "${rows[@]}"
    echo
    echo "$(date -u +%F), commit $(git rev-parse --short HEAD), $machine, $(nproc) cores."
} >docs/long.md.new && mv docs/long.md.new docs/long.md
exit $failed
