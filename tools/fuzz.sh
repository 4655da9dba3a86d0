#!/usr/bin/env bash
# Fuzzes the parsers with clang's libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   tools/fuzz.sh                  10^6 inputs over all targets; `tools/fuzz.sh --help` lists the other modes
#
# Builds in build-fuzz/.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

setup_packages fuzz -DSHARDLINE_MPI=OFF -DSHARDLINE_ONEDNN=OFF -DSHARDLINE_SERVE=OFF
setup_torch "$PWD/build"
exec python3 tests/fuzz/fuzz.py "$@"
