#!/usr/bin/env bash
# Everything that must pass before a change is merged: layout, format, build with warnings as errors, tests, and a short
# fuzzing run.
#
#   tools/test.sh [--all] [CMAKE_OPTION...]      --all: also the tests labelled slow
#
# Builds in build-test/ and build-fuzz/. Works in a fresh clone and without a terminal; CI runs exactly this.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

which_tests=(-LE slow)
if [ "${1:-}" = --all ]; then
  which_tests=()
  shift
fi

check_sources() {
  python3 tools/check_layout.py --self-test
  python3 tools/check_layout.py
  tools/format.sh --check
}

build() {
  cmake --preset test -DTORCH_ROOT="$TORCH_ROOT" -DSHARDLINE_NVCC="$NVCC" "$@" > build-test/configure.log 2>&1 ||
    { cat build-test/configure.log; return 1; }
  cmake --build --preset test
}

# The parsers need clang to be fuzzed; without it the other tests still run.
skipped=
run_fuzzing() {
  if (setup_packages fuzz -DSHARDLINE_MPI=OFF -DSHARDLINE_ONEDNN=OFF -DSHARDLINE_SERVE=OFF); then
    python3 tests/fuzz/fuzz.py --short
  else
    skipped="fuzzing (its packages are missing, see above)"
  fi
}

# On two cores, two suites that compute run at a time, or four that mostly wait (PROCESSORS counts half cores).
run_tests() {
  local result=0
  ctest --test-dir build-test --parallel 4 --output-on-failure --output-junit results.xml "${which_tests[@]}" || result=$?
  tools/test_times.py build-test/results.xml
  return $result
}

mkdir -p build build-test
timed "packages" setup_packages test "$@"
timed "layout and format" check_sources
timed "LibTorch" setup_torch "$PWD/build" "$@"
timed "Apache Arrow" setup_arrow "$PWD/build" "$@"
timed "nvcc" setup_nvcc "$PWD/build"
timed "configure and build" build "$@"
timed "fuzzing" run_fuzzing
timed "tests" run_tests
report_times
[ -z "$skipped" ] || say "SKIPPED: $skipped"
