#!/usr/bin/env bash
# Builds the documentation as a site in build/site, with MkDocs, which is installed into build/_docs. Fails if a link, an
# anchor or a picture does not resolve.
#
#   tools/docs.sh              then open build/site/index.html
#   tools/docs.sh serve        show it at http://127.0.0.1:8000 and follow changes
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(mkdocs==1.6.1 markdown==3.7)
folder=build/_docs
if ! PYTHONPATH=$folder python3 -c "import mkdocs" 2> /dev/null; then
  python3 -m pip --version > /dev/null || { echo "pip is missing; on Debian: apt-get install python3-pip" >&2; exit 2; }
  rm -rf "$folder.part"
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-compile --no-warn-conflicts --target "$folder.part" "${packages[@]}"
  mkdir -p build
  rm -rf "$folder"
  mv "$folder.part" "$folder"
fi
export PYTHONPATH=$folder DISABLE_MKDOCS_2_WARNING=true
if [ "${1:-}" = serve ]; then exec python3 -m mkdocs serve --strict; fi
python3 -m mkdocs build --strict --quiet
echo "wrote build/site/index.html"
