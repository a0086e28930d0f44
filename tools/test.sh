#!/usr/bin/env bash
# Set-up, build and every test, in one command. Ends with ctest's own summary; docs/testing.md says what
# each suite shows.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/test.sh [--asan] [--tsan] [--long] [--only] [--help]

Builds build/release and runs all its tests. Each flag adds a suite after it:
  --asan   unit tests and simulator under AddressSanitizer and UndefinedBehaviorSanitizer (build/asan)
  --tsan   unit tests and simulator under ThreadSanitizer (build/tsan)
  --long   the long tests: many more simulated schedules, real processes under random faults
  --only   only the suites named by the other flags, not the ordinary one
Environment: JOBS  compilers and tests at a time (default: number of cores)
TEXT
}

ordinary=true asan=false tsan=false long=false
for argument in "$@"; do
  case "$argument" in
    --asan) asan=true ;;
    --tsan) tsan=true ;;
    --long) long=true ;;
    --only) ordinary=false ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown argument '$argument'; --help lists them" >&2; exit 2 ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}
tools/setup.sh

build() {  # PRESET BUILD-ARGUMENTS...
  local log preset=$1
  shift
  echo "== build/$preset =="
  log=$(mktemp)
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    exit 1
  fi
  grep -E '^-- Starling: ' "$log" || true
  rm -f "$log"
  cmake --build --preset "$preset" -j "$jobs" "$@"
}

failed=0
suite() {  # PRESET CTEST-ARGUMENTS...: a failed suite does not keep the next from running
  local preset=$1
  shift
  echo "== tests: $preset $* =="
  ctest --preset "$preset" --no-tests=error "$@" || failed=1
}

if $ordinary || $long; then build release; fi
# The long tests run one at a time: some measure what a machine of their own gives.
if $ordinary; then suite release -j "$jobs" -LE long; fi
if $long; then suite release -L long; fi
for sanitizer in asan tsan; do
  if ! ${!sanitizer}; then continue; fi
  build "$sanitizer" --target test_programs
  suite "$sanitizer" -j "$jobs" -L 'unit|sim' -LE long
done
exit $failed
