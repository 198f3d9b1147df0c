#!/bin/bash
# Runs what takes hours: all tests with AddressSanitizer and UndefinedBehaviorSanitizer, all with ThreadSanitizer, every
# fuzzer, trainings in which workers die or networks and disks fail, and changes in every folder that its tests must
# notice. Writes the table of docs/tests.md; how many changes were noticed, it only says.
#
#   long.sh [JOBS [SECONDS]]       SECONDS: of each fuzzer
#   ONLY='changes in src/*'        which parts to run
#   GRADWIRE_STRIKES=20            how often each fault strikes; cut networks and full disks need root
#   GRADWIRE_CHANGES=40            changes a folder
#   GRADWIRE_SEED=1                another seed makes other changes
#   GRADWIRE_MINUTES=60            no further change of a folder is begun after so long
#
# A part's row is written as soon as the part has ended, in place of the row that it had. So the work can be done in
# pieces. A part that fails does not stop the others; the script fails at the end.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)} seconds=${2:-600} only=${ONLY:-*} strikes=${GRADWIRE_STRIKES:-20}
changes=(--changes "${GRADWIRE_CHANGES:-40}" --seed "${GRADWIRE_SEED:-1}" --minutes "${GRADWIRE_MINUTES:-60}")
for number in "$jobs" "$seconds" "$strikes" "${GRADWIRE_CHANGES:-1}" "${GRADWIRE_SEED:-1}" "${GRADWIRE_MINUTES:-1}"; do
    if ! [[ $number =~ ^[1-9][0-9]*$ ]]; then
        echo "long.sh: '$number' is no number from 1 up" >&2
        exit 2
    fi
done
folders=(src/base src/wire src/codec src/net src/link src/owner src/optimizer src/exchange src/pserver src/plan
         src/probe train/net train/data train/members train/disk train/run)
names=("make asan" "make tsan" "make fuzz" "other builds" debian12 debian13 unstable "workers that die" "faults")
logs=build/long page=docs/tests.md
machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores"
mkdir -p "$logs"
failed=0 n_run=0

write_row() { # NAME ROW: the table once more, with this row in place of the one of this name
    local name row
    {
        sed '/^| what/,$d' "$page"
        echo "| what | ended | it said | took | when, which commit, where |"
        echo "|---|---|---|---|---|"
        for name in "${names[@]}"; do
            if [ "$name" = "$1" ]; then row=$2; else row=$(grep -F "| $name |" "$page"); fi
            echo "${row:-| $name | not run yet | | | |}"
        done
    } >"$page.new" && mv "$page.new" "$page"
}

run() { # NAME WORDS...: what its last lines say becomes a row
    local name=$1 begin=$SECONDS result said log
    shift
    # shellcheck disable=SC2254 # ONLY is a pattern.
    case $name in $only) ;; *) return ;; esac
    n_run=$((n_run + 1)) log=$logs/${name//[^a-z]/-}.log
    echo "$name ..." >&2
    if "$@" >"$log" 2>&1; then result=well; else result=FAILED failed=1; fi
    said=$(grep -hE 'tests passed|changes, |fuzzer|things wrong' "$log" | tail -1 | tr '|' '/')
    said="| $name | $result | ${said:-see $log} | $(((SECONDS - begin) / 60)) min |"
    write_row "$name" "$said $(date -u +%F), $(git rev-parse --short HEAD), $machine |"
    echo "$said" >&2
}

strike() { # SCRIPT OPTIONS...: trainings with faults
    cmake --preset release && cmake --build --preset release -j "$jobs" --target gradwire_tool &&
        "tests/net/$1" build/release/gradwire "${@:2}"
}

run "make asan" make asan JOBS="$jobs"
run "make tsan" make tsan JOBS="$jobs"
run "make fuzz" make fuzz SECONDS="$seconds"
run "other builds" scripts/builds.sh "$jobs" no-tcp no-mpi no-onednn
for system in debian12 debian13 unstable; do
    run "$system" scripts/try-on.sh "$system" run check torch deb
done
run "workers that die" strike kill.py --times "$strikes"
run "faults" strike faults.py --times "$strikes" --steps 6000
for folder in "${folders[@]}"; do
    run "changes in $folder" scripts/mutate.py "$folder" "${changes[@]}" --keep "$logs/${folder//\//-}.survivors"
done
if [ "$n_run" = 0 ]; then
    printf 'No part fits ONLY=%s. The parts are:\n' "$only" >&2
    printf '  %s\n' "${names[@]}" "${folders[@]/#/changes in }" >&2
    exit 2
fi
exit $failed
