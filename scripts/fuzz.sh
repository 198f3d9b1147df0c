#!/bin/bash
# Runs every fuzzer for some seconds over a growing corpus in the build folder. Real frames and the kept hostile ones
# seed it. Usage: scripts/fuzz.sh BUILD_DIR SECONDS
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
seconds=$2
"$build/fuzz_seeds" "$build/seeds"
for target in decode inspect reduce join pserver client; do
    [ -x "$build/fuzz_$target" ] || { echo "fuzz_$target: not in this build"; continue; }
    echo "fuzz_$target: $seconds seconds"
    mkdir -p "$build/corpus-$target" "$build/crashes-$target"
    "$build/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=4096 -malloc_limit_mb=1024 \
        -timeout=10 -print_final_stats=1 -verbosity=1 -artifact_prefix="$build/crashes-$target/" \
        "$build/corpus-$target" "$build/seeds" fuzz/corpus 2>"$build/fuzz_$target.log" || {
        tail -n 60 "$build/fuzz_$target.log" >&2
        echo "fuzz_$target failed; the input is in $build/crashes-$target/" >&2
        exit 1
    }
    grep -E 'stat::(number_of_executed_units|new_units_added|peak_rss_mb)|DONE' "$build/fuzz_$target.log"
done
echo "No fuzzer found anything in $seconds seconds each."
