#!/usr/bin/env bash
# From a fresh clone to a trained model and generated text: packages, LibTorch, build, four ranks, generate.
#
#   tools/quickstart.sh [CMAKE_OPTION...]        e.g. -DSHARDLINE_MPI=OFF
#
# Writes to build/ and runs/quickstart (replaced each time). Exit code: 0; 2 if the machine lacks something that needs
# root to install; otherwise that of the part that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

build() {
  cmake --preset release -DTORCH_ROOT="$TORCH_ROOT" "$@" > build/configure.log 2>&1 || { cat build/configure.log; return 1; }
  cmake --build --preset release
}

train() {
  build/tools/shardline train configs/quickstart.json --set output_dir=runs/quickstart \
    --set training.overwrite_output_dir=true
}

generate() {
  build/tools/shardline generate runs/quickstart --prompt "In the beginning" --max-new-tokens 60 \
    --temperature 0.7
}

mkdir -p build
timed "packages" setup_packages "$@"
timed "LibTorch" setup_torch "$PWD/build" "$@"
timed "Apache Arrow" setup_arrow "$PWD/build" "$@"
timed "configure and build" build "$@"
timed "train on 4 ranks" train
timed "generate" generate
report_times
