#!/usr/bin/env bash
# The bundle in a root of its own that holds nothing of this machine but the C library and its loader: the command
# trains there with two workers and gets the bits of the same run outside, and its test programs pass. What runs
# there cannot open anything outside. Called with the build folder; exit code 77 where no such root can be made.
set -euo pipefail

build=$(realpath "$1")
work=$build/bundle-test
root=$work/root

fail() {
  echo "bundle_test.sh: $1" >&2
  exit 1
}

# ---- Namespaces: a root needs no rights of the machine's ---------------------------------------------------
apart=(unshare --map-root-user --mount --pid --fork --kill-child)
# Bind mounts, as a user namespace makes no devices: /dev/null is what processes have as their input.
# shellcheck disable=SC2016  # the inner shell has words of its own
inside() {  # FOLDER PROGRAM ARGUMENTS...: in the root, with an empty environment
  "${apart[@]}" bash -euc '
    root=$1 folder=$2
    shift 2
    mount -t proc proc "$root/proc"
    mount --bind /dev/null "$root/dev/null"
    env -i HOME=/work unshare --root="$root" --wd="$folder" "$@"
  ' inside "$root" "$@" </dev/null
}
rm -rf "$work"
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/work"
touch "$root/dev/null"
# shellcheck disable=SC2016
if ! refused=$("${apart[@]}" bash -euc 'mount -t proc proc "$1/proc"; mount --bind /dev/null "$1/dev/null"' - "$root" 2>&1); then
  echo "skipped: no root of one's own on this machine: $refused"
  exit 77
fi

# ---- The root --------------------------------------------------------------------------------------------
log=$work/build.log
cmake --build "$build" --target bundle >"$log" 2>&1 || { tail -n 30 "$log" >&2; exit 1; }
grep '^bundle: ' "$log"
tar -xzf "$build"/starling-*-x86_64.tar.gz -C "$root"
bundle=$root/starling
size=$(du -sb "$bundle" | cut -f 1)
# Of a static library an object file is linked whole, and in a unity build it holds eight sources.
most=70000000
if grep -q '^CMAKE_UNITY_BUILD:.*=ON$' "$build/CMakeCache.txt"; then most=100000000; fi
[ "$size" -lt $most ] || fail "$size bytes unpacked, and the README says 67 MB"

mapfile -t programs < <(find "$bundle/bin" -type f)
host=()
while read -r path; do
  case "${path##*/}" in
    ld-linux-x86-64.so.2 | libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | libresolv.so.2) ;;
    *) fail "$path is not of the C library, and not in the bundle" ;;
  esac
  mkdir -p "$root${path%/*}"
  cp -L "$path" "$root$path"
  host+=("${path##*/}")
done < <(for file in "${programs[@]}"; do ldd "$file"; done | grep -oE '/[^ ]+ ' | tr -d ' ' | sort -u | grep -v "^$bundle/")
echo "from this machine: ${host[*]}"

# ---- What runs there -------------------------------------------------------------------------------------
inside / /starling/bin/starling version | head -n 1

sed 's|^path = .*|path = "../starling/docs"|' "$bundle/examples/gpt/tiny.toml" >"$root/work/job.toml"
digest_in() { sed -n 's/.*"ev":"done".*"digest":"\([0-9a-f]*\)".*/\1/p' "$1/events.jsonl"; }
run=(--workers 2 --steps 20)
inside /work /starling/bin/starling run job.toml "${run[@]}" --out there >"$work/there.log" 2>&1 ||
  { tail -n 20 "$work/there.log" >&2; fail "the run in the root ended with an error"; }
"$build/starling" run "$root/work/job.toml" "${run[@]}" --out "$work/here" >"$work/here.log" 2>&1 ||
  { tail -n 20 "$work/here.log" >&2; fail "the run outside ended with an error"; }
there=$(digest_in "$root/work/there")
here=$(digest_in "$work/here")
if [ -z "$there" ] || [ "$there" != "$here" ]; then fail "digest '$there' in the root, '$here' outside"; fi
echo "digest $there in the root and outside"

# Scripts' models need a Python, which is not there; a name two addresses, and no name has any there; gpu_tests
# a GPU; transport_times NCCL. What costs a minute of arithmetic and asks nothing of the machine is left out.
arithmetic='*/kernels/devices/*,*/kernel_check_test.cpp'
for file in "$bundle"/bin/tests/*; do
  name=${file##*/} code=0
  if [ "$name" = transport_times ]; then
    inside /starling "/starling/bin/tests/$name" --isa emulated >"$work/$name.log" 2>&1 || code=$?
    grep -q "NCCL is at none of" "$work/$name.log" || fail "transport_times, exit code $code: $(tail -n 1 "$work/$name.log")"
    echo "$name starts in the root, and finds no NCCL"
    continue
  fi
  inside /starling "/starling/bin/tests/$name" --source-file-exclude="*python_model_test.cpp,*processes_test.cpp,$arithmetic" \
    --test-case-exclude='gateway: all addresses of *,mesh: all addresses of *' >"$work/$name.log" 2>&1 ||
    code=$?
  if [ "$code" = 77 ] && [ "$name" = gpu_tests ]; then echo "$name starts in the root, and skips: no GPU"; continue; fi
  if [ "$code" != 0 ]; then tail -n 30 "$work/$name.log" >&2; fail "$name failed in the root"; fi
  echo "$name: $(sed -n 's/.*test cases: *[0-9]* *| *\([0-9]*\) passed.*/\1/p' "$work/$name.log") cases passed in the root"
done
rm -rf "$work"
