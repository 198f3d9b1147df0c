#!/bin/bash
# Trains LeNet on four workers, once with float32 and once with ternary gradients, and compares the two: accuracy,
# bytes, and how long a step takes over slow networks.
# Usage: scripts/run.sh GRADWIRE_TOOL. Environment: DATA (folder with MNIST), STEPS, SEED, RUNS (where the runs go).
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$1
steps=${STEPS:-2500}
seed=${SEED:-1}
runs=${RUNS:-runs}

find_data() {
    local folder folders=(data/mnist shared/data/mnist ../shared/data/mnist)
    if [ -n "${DATA:-}" ]; then
        folders=("$DATA")
    fi
    for folder in "${folders[@]}"; do
        if compgen -G "$folder/train-images*ubyte*" >/dev/null; then
            echo "$folder"
            return
        fi
    done
    if [ -n "${DATA:-}" ]; then
        echo "run.sh: DATA is $DATA, and there is no train-images-idx3-ubyte, plain or packed" >&2
        exit 1
    fi
    echo digits
}

# field FILE NAME: a number or word from a summary.
field() {
    sed -n "s/.*\"$2\": *\([^,} ]*\).*/\1/p" "$1" | head -n 1
}

data=$(find_data)
if [ "$data" = digits ]; then
    echo "No MNIST found (DATA=DIR names its folder): training on the built-in drawn digits." >&2
fi
mkdir -p "$runs"
for codec in none ternary; do
    echo "LeNet, 4 workers, $steps steps, codec $codec" >&2
    "$tool" train --net lenet --data "$data" --workers 4 --codec "$codec" --batch 64 --steps "$steps" --seed "$seed" \
        --out "$runs/run-$codec" --overwrite
done

float=$runs/run-none/summary.json
ternary=$runs/run-ternary/summary.json
row() { # row NAME FIELD PRINTF_FORMAT SCALE [ratio]
    awk -v name="$1" -v a="$(field "$float" "$2")" -v b="$(field "$ternary" "$2")" -v format="$3" -v scale="$4" \
        -v ratio="${5:-}" 'BEGIN {
            printf "%-16s %14s %14s", name, sprintf(format, a * scale), sprintf(format, b * scale)
            if (ratio != "" && b > 0) printf "   %.1f times smaller", a / b
            printf "\n"
        }'
}
echo
echo "LeNet on ${data##*/}, 4 workers, batch 64, $steps steps, $(nproc) cores"
printf '%-16s %14s %14s\n' "" float ternary
row "test accuracy" test_accuracy '%.2f %%' 100
row "bytes up" bytes_up '%.1f MB' 1e-6 ratio
row "bytes down" bytes_down '%.1f MB' 1e-6 ratio
row "step, threads" step_ms '%.2f ms' 1
scripts/run_networks.py "$tool" "$data" "$runs/run-none" "$runs/run-ternary"
for summary in "$float" "$ternary"; do
    if [ "$(field "$summary" replicas_identical)" != true ]; then
        echo "run.sh: the replicas of $summary are not identical" >&2
        exit 1
    fi
done
