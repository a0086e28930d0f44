#!/usr/bin/env bash
# The Python wheel: the package and the `starling` command with every library that it needs (tools/dev/bundle.sh), for
# any Linux with this machine's glibc or a newer one.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/dev/wheel.sh [--help]

Builds build/release and from it build/wheel/starling_elastic-VERSION-py3-none-manylinux_*.whl:
  python3 -m venv mine
  mine/bin/pip install torch   (its CPU variant is enough)
  mine/bin/pip install build/wheel/starling_elastic-*.whl
`pip install starling` installs another project's package.
Environment: JOBS  compilers at a time (default: number of cores)
TEXT
}

case "${1:-}" in
  "") ;;
  -h | --help) usage; exit 0 ;;
  *) echo "wheel.sh: unknown argument '$1'; --help lists them" >&2; exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools/setup.sh
tools/dev/configure.sh release >/dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target starling

root=$PWD/build/wheel
rm -rf "$root"
mkdir -p "$root"
tools/dev/bundle.sh --out "$root/bundle" --program build/release/starling >/dev/null
cp -r tools/python "$root/source"
find "$root/source" -name __pycache__ -prune -exec rm -rf {} +
cp -r "$root/bundle/bin" "$root/bundle/lib" "$root/source/starling/"
# g++'s own libraries are the system's, as in every wheel: Python programs load them as well.
rm -r "$root/source/starling/lib/gcc"
cp -r LICENSE NOTICE "$root/bundle/licences" "$root/source/"

# "glibc X and a libstdc++ that has GLIBCXX_Y". Linux wheels name a glibc alone; the systems with 2.35 are the
# oldest that come with the libstdc++ of g++ 12.
read -r glibc libstdcxx < <(sed -n 's/^ *without lib.gcc: glibc \([0-9.]*\) .*GLIBCXX_\([0-9.]*\)$/\1 \2/p' "$root/bundle/MANIFEST")
newest() { printf '%s\n' "$@" | sort -V | tail -n 1; }
if [[ $(newest "$libstdcxx" 3.4.30) != 3.4.30 ]]; then
  echo "wheel.sh: GLIBCXX_$libstdcxx is needed, that of a newer g++ than 12: which glibc's systems have it?" >&2
  exit 1
fi
platform=manylinux_$(newest "$glibc" 2.35 | tr . _)_x86_64

# Tools of the wheel alone, in a folder of their own that stays for the next time.
tools=$PWD/build/wheel-tools
[[ -x $tools/bin/pip ]] || python3 -m venv "$tools"
# Not bin/pip: that names the folder in which it was made.
pip=("$tools/bin/python" -m pip)
"$tools/bin/python" -c 'import wheel, setuptools' 2>/dev/null || "${pip[@]}" install --quiet 'setuptools>=68' wheel
"${pip[@]}" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$root" \
  "--config-settings=--build-option=--plat-name=$platform" "$root/source"
ls -l "$root"/*.whl
