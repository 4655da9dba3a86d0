#!/usr/bin/env bash
# Checks and measures shardline on this machine's GPU; docs/gpus.md describes the phases and the results.
#
#   tools/gpu_check.sh works|speed|memory [--output gpu_check.json] [OPTION...]     a phase, at most 8 minutes
#   tools/gpu_check.sh table gpu_check.json [FILE...]                               the results as markdown
#
# The programs are those of the archive that tools/gpu_package.sh makes: unpacked beside this script, in the folder or
# archive that SHARDLINE_PACKAGE names, or build-cuda/shardline-gpu.tar.gz. LibTorch is the one of python3, or TORCH_ROOT.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

package=${SHARDLINE_PACKAGE:-}
if [ -z "$package" ] && [ -d "$here/bin" ]; then package=$here; fi
package=${package:-$here/../build-cuda/shardline-gpu.tar.gz}
if [ -f "$package" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  tar -xzf "$package" -C "$folder" --strip-components=1
  package=$folder
fi
python3 "$here/gpu_check.py" --package "$package" "$@"
