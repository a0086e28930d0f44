#!/usr/bin/env bash
# The README's first command, with the build that is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ "$1" -ef build/release/starling ] || { echo "quickstart_test.sh: $1 is not the release build's" >&2; exit 1; }
tools/quickstart.sh --built
