#!/bin/bash
# Builds the NEON kernels and their reference for aarch64, statically, and runs their test in emulation. The test needs
# nothing but the compiler's own libraries. Usage: scripts/test-neon.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
mkdir -p "$build"
# tests/neon/sources lists what is linked, one path a line.
mapfile -t sources < <(grep -v '^#' tests/neon/sources)
aarch64-linux-gnu-gcc -std=gnu17 -O2 -Wall -Wextra -ffp-contract=off -fno-math-errno -static -Iinclude -Isrc \
    "${sources[@]}" -o "$build/neon_test" -lm
qemu-aarch64 "$build/neon_test"
