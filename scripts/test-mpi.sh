#!/bin/bash
# Builds the mpi link and its tests with the other MPI, without trainer and tool, and runs them.
# Usage: scripts/test-mpi.sh BUILD_DIR [mpich|openmpi]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
mpi=${2:-mpich}
for tool in mpicc.$mpi mpiexec.$mpi; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
# The library is compiled as make check does, so ccache has it.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGW_MPI="$mpi" -DGW_BUILD_TRAIN=OFF -DGW_BUILD_TOOL=OFF \
    >/dev/null
cmake --build "$build" -j 2 --target mpi_test exchange_mpi example_mpi_average
ctest --test-dir "$build" --output-on-failure -R '^(mpi_|exchange_mpi|example_mpi_)'
