#!/usr/bin/env bash
# cmake --preset PRESET, also where the tree was moved or copied with its build folder: CMake refuses that with
# errors about its cache, and it is configured anew here.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/dev/configure.sh PRESET [CMAKE-ARGUMENT...]

PRESET is one of CMakePresets.json: release, debug, asan, tsan.
TEXT
}

case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  "" | -*) echo "configure.sh: a preset is wanted; --help says which" >&2; exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
preset=$1
shift
cache=build/$preset/CMakeCache.txt
fresh=()
if [[ -e $cache ]]; then
  made_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")
  made_in=$(sed -n 's/^CMAKE_CACHEFILE_DIR:INTERNAL=//p' "$cache")
  if ! [[ $made_for -ef . && $made_in -ef build/$preset ]]; then
    echo "configure.sh: build/$preset was made for $made_for, and this is $PWD: configured and built anew" >&2
    fresh=(--fresh)
  fi
fi
exec cmake --preset "$preset" "${fresh[@]}" "$@"
