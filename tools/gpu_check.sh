#!/usr/bin/env bash
# Checks and measures shardline on this machine's GPU; docs/gpus.md describes the phases and the results.
#
#   tools/gpu_check.sh works|speed|memory [--output gpu_check.json] [OPTION...]     a phase, at most 8 minutes
#   tools/gpu_check.sh table [gpu_check.json...]                                    the results as markdown
#
# The programs are those of the archive that tools/gpu_package.sh makes: unpacked next to this script, in the folder or
# archive that SHARDLINE_PACKAGE names, or build-cuda/shardline-gpu.tar.gz. LibTorch is the one of python3, or TORCH_ROOT.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

package=${SHARDLINE_PACKAGE:-}
if [ -z "$package" ] && [ -d "$here/bin" ]; then package=$here; fi
package=${package:-$here/../build-cuda/shardline-gpu.tar.gz}
# In place of this shell, so that a signal to it reaches the phase, which ends its commands.
exec python3 "$here/gpu_check.py" --package "$package" "$@"
