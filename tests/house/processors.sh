#!/bin/bash
# Processors that lack one instruction set which the AVX2 kernels use get the scalar ones. An emulator stands in for
# them. Usage: processors.sh TOOL
set -euo pipefail
tool=$1
command -v qemu-x86_64 >/dev/null || { echo "skipped: qemu-x86_64 is not installed"; exit 77; }
kernels() { qemu-x86_64 -cpu "$1" "$tool" --version | sed -n 's/^kernels *//p' | cut -d ' ' -f 1; }

if [ "$(kernels max)" != avx2 ]; then
    echo "skipped: this qemu emulates no AVX2"
    exit 77
fi
for lacks in avx2 bmi2 popcnt f16c; do
    found=$(kernels "max,-$lacks")
    echo "without $lacks: $found"
    [ "$found" = scalar ] || { echo "the AVX2 kernels use $lacks"; exit 1; }
done
