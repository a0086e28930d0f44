#!/usr/bin/env bash
# Puts together a folder that runs wherever it lies: the command, every shared library that it needs but the C
# library's own, licence texts, examples, documents. The build's target `bundle` and tools/dev/wheel.sh call it.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/dev/bundle.sh --out FOLDER --program FILE... [--plugin FILE] [--test FILE]... [--archive FILE]

Usually called by the build:  cmake --build build/release --target bundle
  --out FOLDER     is made anew
  --program FILE   the command `starling`, and others; becomes bin/NAME
  --plugin FILE    becomes lib/starling/NAME
  --test FILE      a test program; becomes bin/tests/NAME
  --archive FILE   the folder packed (.tar.gz), with `starling` as its name inside
Programs have to be linked with an RPATH into lib and lib/gcc (tools/dev/cmake/StarlingBundle.cmake).
TEXT
}

fail() {
  echo "bundle.sh: $1" >&2
  exit "${2:-1}"
}

out="" archive=""
programs=() plugins=() tests=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --out | --program | --plugin | --test | --archive) ;;
    *) fail "unknown argument '$1'; --help lists them" 2 ;;
  esac
  [ $# -gt 1 ] || fail "$1 needs a value" 2
  case "$1" in
    --out) out=$(realpath -m "$2") ;;
    --program) programs+=("$(realpath "$2")") ;;
    --plugin) plugins+=("$(realpath "$2")") ;;
    --test) tests+=("$(realpath "$2")") ;;
    --archive) archive=$(realpath -m "$2") ;;
  esac
  shift 2
done
if [ -z "$out" ] || [ ${#programs[@]} -eq 0 ]; then fail "--out and --program are needed; --help says more" 2; fi

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
unset LD_LIBRARY_PATH LD_PRELOAD
export LC_ALL=C

# ---- What is copied --------------------------------------------------------------------------------------
rm -rf "$out"
mkdir -p "$out/bin" "$out/lib/gcc" "$out/licences" "$out/tests"
for file in "${programs[@]}"; do
  strip -o "$out/bin/${file##*/}" "$file"
done
for file in "${plugins[@]}"; do
  mkdir -p "$out/lib/starling"
  strip --strip-unneeded -o "$out/lib/starling/${file##*/}" "$file"
  # Tables of products, which the plugin reads beside itself.
  if [ -d kernels/cuda/plans ]; then cp -r kernels/cuda/plans "$out/lib/starling/"; fi
done
for file in "${tests[@]}"; do
  mkdir -p "$out/bin/tests"
  strip -o "$out/bin/tests/${file##*/}" "$file"
done
cp -r examples "$out/"
cp -r tests/fixtures "$out/tests/"
find "$out/examples" -name __pycache__ -prune -exec rm -rf {} +
mkdir -p "$out/docs" "$out/tools/bench"
cp README.md CHANGELOG.md LICENSE NOTICE "$out/"
cp docs/*.md "$out/docs/"
cp tools/gpu_check.sh tools/gpu_{torch,script}.py tools/verify_ledger.py "$out/tools/"
mkdir -p "$out/tools/python/starling"
cp tools/python/starling/*.py "$out/tools/python/starling/"
cp tools/bench/{kill_times,compare_pytorch,gpu_roofline,gpu_kernels}.py "$out/tools/bench/"
programs_there() { find "$out/bin" "$out/lib/starling" -type f 2>/dev/null | sort; }

# Man pages and completions, where a shell's MANPATH and XDG_DATA_DIRS may lead.
python3 tools/package/pages.py --out "$out/share" "${programs[@]}"

# ---- Libraries -------------------------------------------------------------------------------------------
# The C library and its loader belong to a system's kernel and configuration, and to one another: a part of
# another version beside the system's own would not start.
glibc='^(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|nss_.*|thread_db))\.so\.[0-9]+$'

# The libraries that FILES need, directly or not: "name path" a line, without glibc's.
libraries_of() {  # FILES...
  local lines
  lines=$(for file in "$@"; do ldd "$file"; done)
  if grep 'not found' <<<"$lines" >&2; then fail "libraries are missing"; fi
  sed -n 's|^\s*\([^ ]*\) => \(/.*\) (0x.*|\1 \2|p' <<<"$lines" | sort -u | awk -v glibc="$glibc" '$1 !~ glibc'
}

# The Debian package that a file came with.
package_of() {  # PATH
  local path
  for path in "$1" "$(realpath "$1")" "/usr$1" "${1#/usr}"; do
    # A diversion or a second architecture has a line of its own.
    if dpkg-query -S "$path" 2>/dev/null | sed -n 's/^\([a-z0-9.+-]*\)[:,].*/\1/p' | head -n 1 | grep .; then return; fi
  done
  fail "no package has $1, so its licence is not known"
}

# The command opens these at run time, and has their own libraries beside them: a system's would want its own OpenSSL.
opened=()
for name in libcurl.so.4 libdw.so.1; do
  path=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p | sed -n "s|^\s*$name (libc6,x86-64) => ||p" | head -n 1)
  [ -n "$path" ] || fail "$name is missing"
  opened+=("$path")
done
libraries=$(mapfile -t files < <(programs_there)
  { libraries_of "${files[@]}" "${opened[@]}"; for path in "${opened[@]}"; do echo "${path##*/} $path"; done; } | sort -u)
manifest=()
while read -r name path; do
  package=$(package_of "$path")
  version=$(dpkg-query -W -f='${Version}' "$package" | head -n 1)
  # g++'s own, in a folder of their own: where the system has such or newer ones they may be removed.
  folder=lib
  case "$name" in libstdc++.so.* | libgcc_s.so.*) folder=lib/gcc ;; esac
  install -m 755 "$(realpath "$path")" "$out/$folder/$name"
  cp -L "/usr/share/doc/$package/copyright" "$out/licences/$package" || fail "$package has no licence text"
  manifest+=("$(printf '%-26s %-20s %s' "$folder/$name" "$package" "$version")")
done <<<"$libraries"
# Texts that Debian's point to and do not contain.
grep -rhoE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$out/licences" | sort -u | while read -r text; do
  mkdir -p "$out/licences/common-licenses"
  [ ! -f "$text" ] || cp -L "$text" "$out/licences/common-licenses/"
done

# ---- Whether it holds ------------------------------------------------------------------------------------
mapfile -t files < <(programs_there)
outside=$(libraries_of "${files[@]}" | awk -v out="$out/" 'index($2, out) != 1 { print $1 " is found at " $2 }')
[ -z "$outside" ] || fail "not from the bundle (are programs linked with its RPATH?): $outside"

# The newest version of the C library that anything in FOLDERS asks for.
glibc_of() {  # FOLDERS...
  find "$@" -maxdepth 1 -type f -exec objdump -T {} + 2>/dev/null |
    grep -oE '\(GLIBC_[0-9.]+\)' | tr -d '()' | sed 's/GLIBC_//' | sort -uV | tail -n 1
}
folders=("$out/bin" "$out/lib")
for folder in "$out/bin/tests" "$out/lib/starling"; do [ ! -d "$folder" ] || folders+=("$folder"); done
needs=$(glibc_of "${folders[@]}")
needs_gcc=$(glibc_of "$out/lib/gcc")
libstdcxx=$(find "${folders[@]}" -maxdepth 1 -type f -exec objdump -T {} + 2>/dev/null |
  grep -oE 'GLIBCXX_[0-9.]+' | sort -uV | tail -n 1)
{
  "$out/bin/starling" version | grep -v '^isa '
  echo "commit     $(git describe --always --dirty 2>/dev/null || echo "not known")"
  echo "needs      Linux, x86-64 with AVX2, glibc $(printf '%s\n' "$needs" "$needs_gcc" | sort -V | tail -n 1)"
  echo "           without lib/gcc: glibc $needs and a libstdc++ that has $libstdcxx"
  echo
  echo "From Debian's packages, unchanged; licences/ has their texts:"
  printf '%s\n' "${manifest[@]}"
} >"$out/MANIFEST"

size=$(du -sb "$out" | awk '{ printf "%.1f MB", $1 / 1e6 }')
if [ -n "$archive" ]; then
  # The same bytes from the same files, whoever packs them and when.
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=go=rX -C "${out%/*}" \
    --transform "s|^${out##*/}|starling|" -cf - "${out##*/}" | gzip -9n >"$archive"
  size="$size, packed $(stat -c %s "$archive" | awk '{ printf "%.1f MB", $1 / 1e6 }')"
fi
echo "bundle: $out ($size; glibc $needs, with lib/gcc $needs_gcc)"
