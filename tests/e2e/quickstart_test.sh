#!/usr/bin/env bash
# The README's first command, with the build that is there: in a copy of what it needs, where the commands that
# install and compile are stand-ins that take four seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ "$1" -ef build/release/starling ] || { echo "quickstart_test.sh: $1 is not the release build's" >&2; exit 1; }

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy"/{bin,tools/dev,examples/gpt,build/release}
cp tools/quickstart.sh "$copy/tools"
# The same job, a quarter as wide: what is said is tested, and at what speed is bench's.
sed 's/^width = 128 /width = 32 /' examples/gpt/tiny.toml >"$copy/examples/gpt/tiny.toml"
ln -s "$PWD/build/release/starling" "$copy/build/release/starling"
stand_in() {  # PATH, with its text on stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$copy/$1"
  chmod +x "$copy/$1"
}
stand_in tools/setup.sh <<<'echo "setup: all packages are there"'
stand_in tools/dev/configure.sh <<<'true'
stand_in bin/ninja <<<'for i in 1 2; do echo "[$i/420] Building CXX object"; done'
stand_in bin/cmake <<<'for i in $(seq 420); do echo "[$i/420] Building CXX object"; done; sleep 4'

SECONDS=0
PATH="$copy/bin:$PATH" "$copy/tools/quickstart.sh" | tee "$copy/said"
took=$SECONDS
expect() {  # WHAT REGEX
  grep -qE "$2" "$copy/said" || { echo "quickstart_test.sh: $1 is not said" >&2; exit 1; }
}
# A person who waits for a quarter of an hour knows of how many steps, and that they go on.
expect "how many steps compiling has" '^== building build/release: 420 steps on [0-9]+ cores, of some seconds each ==$'
expect "how far it is" '^  [0-9]{3} of 420$'
[ "$(grep -cE '^  [0-9]+ of 420$' "$copy/said")" -le 12 ] || { echo "quickstart_test.sh: a line for every step" >&2; exit 1; }
expect "how long compiling took" '^built in [0-9]+ s: starling '
expect "the verdict" '^verdict: held \(60 steps and the final state have the same bits; 1 worker killed, 2 joined; [0-9]+ s\)$'
seconds=$(sed -n 's/^verdict: .*; \([0-9]*\) s)$/\1/p' "$copy/said")
# Both are cut to whole seconds.
[ "$seconds" -le $((took - 3)) ] || { echo "quickstart_test.sh: the verdict's $seconds s of $took count compiling" >&2; exit 1; }
