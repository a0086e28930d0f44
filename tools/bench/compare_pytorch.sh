#!/usr/bin/env bash
# Starling beside PyTorch on this machine: the same model, text and step, run in turn, pair by pair.
# Needs python3-venv, network access to the Python package index and about 6 GB for PyTorch, once.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/bench/compare_pytorch.sh [--venv DIR] [--pairs N] [--only tiny,gpt2,step,allreduce] [--json FILE]
                                      [--sizes 1000000,10000000,124000000]

  --venv DIR   where PyTorch is or gets installed (default: build/pytorch)
  --pairs N    pairs of runs per case of the tiny model (default 5; the 124M model gets 2)
  --only LIST  of tiny, gpt2, step and allreduce (default: all four); step: what a step takes beyond
               computing, which is replaced by waiting, beside DistributedDataParallel over gloo
  --sizes LIST parameters of the model of step (default: the three above)
  --json FILE  write every figure to FILE as well
TEXT
}

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=build/pytorch
passed=()
while [ $# -gt 0 ]; do
  case "$1" in
    --venv) venv=${2:?--venv needs a folder}; shift 2 ;;
    --pairs | --only | --sizes | --json) passed+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "compare_pytorch.sh: unknown argument '$1'; --help lists them" >&2; exit 2 ;;
  esac
done

tools/setup.sh
cmake --preset release >/dev/null
cmake --build --preset release -j "$(nproc)" --target starling >/dev/null
if ! "$venv/bin/python" -c 'import torch, numpy' 2>/dev/null; then
  echo "installing PyTorch into $venv"
  python3 -m venv "$venv" || { echo "compare_pytorch.sh: python3 -m venv failed; Debian's package is python3-venv" >&2; exit 2; }
  "$venv/bin/pip" install --quiet torch numpy
fi
exec "$venv/bin/python" tools/bench/compare_pytorch.py compare --starling build/release/starling "${passed[@]}"
