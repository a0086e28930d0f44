#!/usr/bin/env bash
# Kills and joins: Starling beside torchft on this machine, on a model of the same size and with the
# same pace of steps. Needs python3-venv, network access to the Python package index and about 6 GB
# for PyTorch, once; --only starling needs none of these.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/bench/compare_recovery.sh [--venv DIR] [--kills N] [--only starling,torchft]
                                       [--settings defaults,tuned,aggressive] [--json FILE] [--quick]

  --venv DIR       where PyTorch and torchft are or get installed (default: build/pytorch)
  --kills N        kills, and as many joins, of each system and setting (default 10)
  --only LIST      of starling and torchft (default: both)
  --settings LIST  torchft's timeouts (default: aggressive, the fastest that works)
  --json FILE      write every figure to FILE as well
  --quick          2 kills, to see that it runs

Four workers, 0.9 million parameters, one micro-batch of 20 ms a worker and step. One worker is
killed (SIGKILL) at a random instant; when the others have gone on, a new one joins.
  kill gap         longest distance of two commits after the kill, minus the median step
  join standstill  longest distance of two commits around the join, minus the median step
TEXT
}

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=build/pytorch
only=starling,torchft
passed=()
while [ $# -gt 0 ]; do
  case "$1" in
    --venv) venv=${2:?--venv needs a folder}; shift 2 ;;
    --only) only=${2:?--only needs a list}; shift 2 ;;
    --kills | --settings | --json) passed+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
    --quick) passed+=("$1"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "compare_recovery.sh: unknown argument '$1'; --help lists them" >&2; exit 2 ;;
  esac
done

tools/setup.sh
cmake --preset release >/dev/null
cmake --build --preset release -j "$(nproc)" --target starling >/dev/null
python=python3
case ",$only," in *,torchft,*)
  if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    echo "installing PyTorch into $venv"
    python3 -m venv "$venv" || { echo "compare_recovery.sh: python3 -m venv failed; Debian's package is python3-venv" >&2; exit 2; }
    "$venv/bin/pip" install --quiet torch numpy
  fi
  # The release, 0.2.0, does not survive a kill with gloo; the nightly does.
  if ! "$venv/bin/python" -c 'import torchft' 2>/dev/null; then
    echo "installing torchft into $venv"
    "$venv/bin/pip" install --quiet torchft-nightly
  fi
  python="$venv/bin/python" ;;
esac
exec "$python" tools/bench/compare_recovery.py compare --starling build/release/starling --only "$only" "${passed[@]}"
