# Sourced by quickstart.sh, test.sh and fuzz.sh: makes sure that the machine has what the build needs.
#
#   setup_packages WHAT...      installs missing Debian/Ubuntu packages, or prints the command to run and exits with 2
#   setup_torch FOLDER OPTION...  sets TORCH_ROOT: an installed LibTorch, or the pinned one, downloaded into the folder
#   setup_arrow FOLDER OPTION...  downloads Apache Arrow into the folder, if neither it nor ARROW_ROOT has it
#   setup_nvcc FOLDER           sets NVCC: an installed nvcc, or the pinned one, downloaded into the folder
#   timed NAME COMMAND...       runs a part and remembers its seconds;  report_times  prints them
#
# Set TORCH_ROOT to a folder with lib/libtorch_cpu.so to use that. The scripts pass their arguments to cmake;
# -DSHARDLINE_MPI=OFF, -DSHARDLINE_ONEDNN=OFF, -DSHARDLINE_SERVE=OFF or -DSHARDLINE_ARROW=OFF avoid what they need.

# The wheel that the project is built and tested with, and the two libraries that its CPU half needs.
torch_wheels=(torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
# With -DSHARDLINE_CUDA=ON: libraries that its CUDA half loads and that not every CUDA toolkit has, with their wheels.
declare -A wheel_of=(
  [libcufile.so.0]=nvidia-cufile==1.15.1.6
  [libcusparseLt.so.0]=nvidia-cusparselt-cu13==0.8.0
  [libnvshmem_host.so.3]=nvidia-nvshmem-cu13==3.4.5
  [libcudnn.so.9]=nvidia-cudnn-cu13==9.19.0.56
  [libnccl.so.2]=nvidia-nccl-cu13==2.28.9
)
torch_oldest=2.11  # the oldest that is tested; 2.8 refuses products that add to fp32
arrow_wheels=(pyarrow==26.0.1)  # for Parquet and Arrow files; has headers and libraries for C++
# nvcc and what it needs to compile the kernels; tests do so on machines without a GPU, too.
nvcc_wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96)

# "package: how to detect it". For a header, the compiler is asked.
build_needs=(
  "g++: command g++"
  "cmake: command cmake"
  "ninja-build: command ninja"
  "ccache: command ccache"
  "pkg-config: command pkg-config"
  "python3: command python3"
  "nlohmann-json3-dev: header nlohmann/json.hpp"
  "libcli11-dev: header CLI/CLI.hpp"
  "libpcre2-dev: header pcre2posix.h"
  "libxxhash-dev: header xxhash.h"
  "libicu-dev: header unicode/uchar.h"
  "zlib1g-dev: header zlib.h"
  "libzstd-dev: header zstd.h"
  "libyaml-dev: header yaml.h"
)
serve_needs=("libboost-dev: header boost/beast.hpp" "libarchive-dev: header archive.h")
mpi_needs=("libopenmpi-dev: command mpicxx" "openmpi-bin: command mpirun")
# Debian's oneDNN has a GPU half, for which its CMake files require OpenCL.
onednn_needs=("libdnnl-dev: header dnnl.hpp" "ocl-icd-opencl-dev: header CL/cl.h")
test_needs=("catch2: header catch2/catch.hpp" "clang-format: command clang-format" "iproute2: command ip")
fuzz_needs=(
  "clang-14: command clang++-14"
  "libclang-rt-14-dev: clang_library fuzzer"
  "llvm-14: command llvm-symbolizer-14"
  "patch: command patch"
)
pip_needs=("python3-pip: pip")

say() { echo "== $*" >&2; }

stop_with_2() {
  printf '%s\n' "$@" >&2
  exit 2
}

# ---- timing

time_names=()
time_seconds=()

timed() {
  local name=$1 begin=$SECONDS
  shift
  say "$name"
  "$@"
  time_names+=("$name")
  time_seconds+=($((SECONDS - begin)))
}

report_times() {
  local i
  echo
  for i in "${!time_names[@]}"; do printf '%-24s %5d s\n' "${time_names[i]}" "${time_seconds[i]}"; done
}

# ---- packages

is_there() {
  # shellcheck disable=SC2086  # lists of options
  case $1 in
    command) command -v "$2" > /dev/null ;;
    header) echo "#include <$2>" | g++ -std=c++20 ${CPPFLAGS:-} ${CXXFLAGS:-} -E -x c++ - > /dev/null 2>&1 ;;
    clang_library) [ -e "$(clang++-14 -print-runtime-dir 2> /dev/null)/libclang_rt.$2-$(uname -m).a" ] ;;
    pip) python3 -m pip --version > /dev/null 2>&1 ;;
  esac
}

missing_of() {
  local need
  for need in "$@"; do
    # shellcheck disable=SC2086  # the probe is two words
    is_there ${need#*: } || echo "${need%%:*}"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_install() {
  command -v apt-get > /dev/null || return 1
  [ "$(id -u)" = 0 ] || sudo -n true 2> /dev/null
}

install_needs() {
  local missing
  missing=$(missing_of "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  if ! can_install; then
    stop_with_2 "Missing: $missing" \
      "With administrator's rights on Debian or Ubuntu:" \
      "    sudo apt-get update && sudo apt-get install -y $missing" \
      "Without them, ask whoever runs this machine, or bring the same libraries in a prefix of your own" \
      "(CPPFLAGS=-I... and -DCMAKE_PREFIX_PATH=... are honoured). Open MPI, oneDNN and the HTTP server can be left out" \
      "with" \
      "    $0 -DSHARDLINE_MPI=OFF -DSHARDLINE_ONEDNN=OFF -DSHARDLINE_SERVE=OFF" \
      "Ranks are then threads of one process, matrix products are PyTorch's own, and models are not served."
  fi
  say "installing $missing"
  as_root apt-get update -qq
  # shellcheck disable=SC2086  # a list of names
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing < /dev/null > /dev/null
  missing=$(missing_of "$@" | tr '\n' ' ')
  [ -z "$missing" ] || stop_with_2 "Still not usable after installing: $missing" \
    "(this distribution may have another version under that name; Debian 12 is what the project is tested on)"
}

# setup_packages [test|fuzz] [CMAKE_OPTION...]
setup_packages() {
  local needs=("${build_needs[@]}") options=" $* "
  [[ $options == *" -DSHARDLINE_SERVE=OFF "* ]] || needs+=("${serve_needs[@]}")
  [[ $options == *" -DSHARDLINE_MPI=OFF "* ]] || needs+=("${mpi_needs[@]}")
  [[ $options == *" -DSHARDLINE_ONEDNN=OFF "* ]] || needs+=("${onednn_needs[@]}")
  [[ $options != *" test "* ]] || needs+=("${test_needs[@]}")
  [[ $options != *" fuzz "* ]] || needs+=("${fuzz_needs[@]}")
  install_needs "${needs[@]}"
}

# ---- LibTorch

torch_library=libtorch_cpu.so  # libtorch_cuda.so in builds for CUDA

# Prints the version when $1 is a torch folder that has this library and is new enough.
usable_torch() {
  [ -e "$1/lib/$torch_library" ] || return 1
  local version
  version=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$1/version.py" 2> /dev/null)
  [ -n "$version" ] || version=$(cut -d+ -f1 "$1/build-version" 2> /dev/null)
  [ "$(printf '%s\n' "$torch_oldest" "$version" | sort -V | head -1)" = "$torch_oldest" ] && echo "$version"
}

installed_torch_folders() {
  local prefix
  tr ':' '\n' <<< "${CMAKE_PREFIX_PATH:-}" | while read -r prefix; do
    [ -z "$prefix" ] || printf '%s\n' "$prefix" "$prefix/torch" "$prefix"/lib/python3*/site-packages/torch
  done
  python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
}

# Adds wheels to the folder. The C++ side does not care which Python a wheel was made for, so one version serves every
# machine.
fetch_wheels() {
  local folder=$1 platforms=() glibc
  for glibc in {17..28}; do platforms+=(--platform "manylinux_2_${glibc}_$(uname -m)"); done
  rm -rf "$folder.part"
  PIP_ROOT_USER_ACTION=ignore \
    python3 -m pip install --quiet --no-deps --no-compile --target "$folder.part" --only-binary=:all: \
    --python-version 3.11 --implementation cp --abi cp311 --abi none \
    --platform "manylinux2014_$(uname -m)" "${platforms[@]}" "${@:2}"
  mkdir -p "$folder"
  cp -rl "$folder.part/." "$folder"  # wheels share folders
  rm -rf "$folder.part"
}

# What the loader does not find for the CUDA half of the torch folder $1.
missing_cuda_libraries() {
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64 ldd "$1/lib/libtorch_cuda.so" |
    awk '/not found/ { print $1 }' | sort -u
}

# setup_cuda_half FOLDER: fetches what is missing if LibTorch is the one in this folder.
setup_cuda_half() {
  local missing library wheels=()
  missing=$(missing_cuda_libraries "$TORCH_ROOT")
  for library in $missing; do wheels+=("${wheel_of[$library]:-}"); done
  if [ -n "$missing" ] && [ "$TORCH_ROOT" = "$1/torch" ] && [ -n "${wheels[*]// /}" ]; then
    install_needs "${pip_needs[@]}"
    # shellcheck disable=SC2068  # without the empty ones
    fetch_wheels "$1" ${wheels[@]}
    missing=$(missing_cuda_libraries "$TORCH_ROOT")
  fi
  # shellcheck disable=SC2086  # a list of names
  [ -z "$missing" ] || stop_with_2 "LibTorch in $TORCH_ROOT needs libraries that are not found:" ${missing} \
    "A CUDA toolkit has cuBLAS, cuFFT and the like (name its folder in LD_LIBRARY_PATH if it is not /usr/local/cuda)," \
    "these wheels have the others: ${wheel_of[*]}" \
    "If TORCH_ROOT is set, unset it to have LibTorch fetched with them."
}

setup_torch() {
  local folder=$1/_torch candidate version cuda=
  if [[ " $* " == *" -DSHARDLINE_CUDA=ON "* ]]; then cuda=yes torch_library=libtorch_cuda.so; fi
  if [ -n "${TORCH_ROOT:-}" ]; then
    usable_torch "$TORCH_ROOT" > /dev/null || stop_with_2 \
      "TORCH_ROOT=$TORCH_ROOT is not LibTorch $torch_oldest or newer (no lib/$torch_library, or an older version)." \
      "Set it to the 'torch' folder of an unpacked wheel or of a libtorch archive, or unset it to have one fetched."
  else
    while read -r candidate; do
      if [ -n "$candidate" ] && usable_torch "$candidate" > /dev/null; then TORCH_ROOT=$candidate && break; fi
    done < <(printf '%s\n' "$folder/torch"; installed_torch_folders)
  fi
  if [ -z "${TORCH_ROOT:-}" ]; then
    install_needs "${pip_needs[@]}"
    mkdir -p "$1"
    rm -rf "$folder"
    fetch_wheels "$folder" "${torch_wheels[@]}"
    TORCH_ROOT=$folder/torch
  fi
  version=$(usable_torch "$TORCH_ROOT") || stop_with_2 "$TORCH_ROOT: no usable LibTorch"
  export TORCH_ROOT
  [ -z "$cuda" ] || setup_cuda_half "$folder"
  say "LibTorch $version in $TORCH_ROOT"
}

# ---- Apache Arrow

setup_arrow() {
  local folder=$1/_arrow
  [[ " $* " != *" -DSHARDLINE_ARROW=OFF "* ]] || return 0
  if [ -n "${ARROW_ROOT:-}" ]; then
    [ -e "$ARROW_ROOT/include/parquet/arrow/reader.h" ] || stop_with_2 \
      "ARROW_ROOT=$ARROW_ROOT has no headers of Apache Arrow." \
      "Set it to the folder 'pyarrow' of an unpacked wheel, or unset it to have one fetched."
  elif [ ! -e "$folder/pyarrow/include/parquet/arrow/reader.h" ]; then
    install_needs "${pip_needs[@]}"
    rm -rf "$folder"
    fetch_wheels "$folder" "${arrow_wheels[@]}"
  fi
  say "Apache Arrow in ${ARROW_ROOT:-$folder/pyarrow}"
}

# ---- nvcc

# C++20 and the architectures of the tests need CUDA 12 or newer.
usable_nvcc() {
  local release
  release=$("$1" --version 2> /dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  [ "${release:-0}" -ge 12 ]
}

setup_nvcc() {
  local folder=$1/_cuda candidate
  NVCC=
  for candidate in "$(command -v nvcc)" /usr/local/cuda/bin/nvcc "$folder/nvidia/cu13/bin/nvcc"; do
    if [ -n "$candidate" ] && usable_nvcc "$candidate"; then NVCC=$candidate && break; fi
  done
  if [ -z "$NVCC" ]; then
    install_needs "${pip_needs[@]}"
    rm -rf "$folder" "$folder.part"
    PIP_ROOT_USER_ACTION=ignore \
      python3 -m pip install --quiet --no-deps --no-compile --target "$folder.part" --only-binary=:all: "${nvcc_wheels[@]}"
    mv "$folder.part" "$folder"
    NVCC=$folder/nvidia/cu13/bin/nvcc
  fi
  usable_nvcc "$NVCC" || stop_with_2 "$NVCC: no usable nvcc"
  say "nvcc in $NVCC"
}
