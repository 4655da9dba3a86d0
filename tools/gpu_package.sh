#!/usr/bin/env bash
# Builds for GPUs of compute capability 8.0 and newer, and packs what tools/gpu_check.sh needs on a machine with a GPU
# and LibTorch into build-cuda/shardline-gpu.tar.gz: the programs, stripped, and the few libraries that the machine
# may lack. The script itself needs no GPU. Ranks are threads, and products on CPUs are ATen's: Open MPI and oneDNN are left out.
#
#   tools/gpu_package.sh [CMAKE_OPTION...]
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -h | --help) sed -n '2,6s/^# //p' tools/gpu_package.sh; exit 0 ;; esac
source tools/setup.sh

programs=(tools/shardline tools/bench_step tools/bench_device tests/cuda/cuda_tests)
options=(-DSHARDLINE_CUDA=ON -DSHARDLINE_MPI=OFF -DSHARDLINE_ONEDNN=OFF -DSHARDLINE_SERVE=OFF
  -DSHARDLINE_ARROW=OFF)
most_bytes=$((64 << 20))

build() {
  # shellcheck disable=SC2016  # $ORIGIN is for the loader
  cmake --preset cuda -DTORCH_ROOT="$TORCH_ROOT" -DCMAKE_CUDA_COMPILER="$NVCC" "${options[@]}" \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN/../lib' "$@" > build-cuda/configure.log 2>&1 ||
    { cat build-cuda/configure.log; return 1; }
  cmake --build build-cuda --target "${programs[@]##*/}"
}

# The libraries that come with neither LibTorch, CUDA nor the C and C++ runtime.
own_libraries() {
  LD_LIBRARY_PATH="$TORCH_ROOT/lib" ldd "$1" |
    awk '/libicu|libpcre2|libxxhash|libzstd|libz\./ { print $3 }'
}

pack() {
  local folder=build-cuda/shardline-gpu archive=build-cuda/shardline-gpu.tar.gz program library
  rm -rf "$folder" "$archive"
  mkdir -p "$folder/bin" "$folder/lib"
  for program in "${programs[@]}"; do
    strip -o "$folder/bin/${program##*/}" "build-cuda/$program"
    for library in $(own_libraries "build-cuda/$program"); do cp -L "$library" "$folder/lib/"; done
  done
  cp tools/gpu_check.sh tools/gpu_check.py tools/gpu_check_steps.py tools/gpu_peer.py "$folder/"
  git describe --always --dirty > "$folder/BUILD"
  tar -czf "$archive" -C build-cuda "${folder##*/}"
  local bytes
  bytes=$(stat -c %s "$archive")
  say "$archive: $((bytes >> 20)) MiB"
  [ "$bytes" -lt "$most_bytes" ] || stop_with_2 "$archive is larger than $((most_bytes >> 20)) MiB"
}

mkdir -p build build-cuda
timed "packages" setup_packages test "${options[@]}"
timed "LibTorch" setup_torch "$PWD/build" "${options[@]}"
timed "nvcc" setup_nvcc "$PWD/build"
timed "configure and build" build "$@"
timed "archive" pack
report_times
