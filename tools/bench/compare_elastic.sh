#!/usr/bin/env bash
# One PyTorch model under three elastic trainers on this machine: Starling, torchft and Horovod, through the same
# kills. Needs python3-venv, network access to the Python package index, about 9 GB for two versions of PyTorch and
# up to half an hour to compile Horovod, once; STARLING=COMMAND spares the build of Starling.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/bench/compare_elastic.sh [--venv DIR] [--only starling,torchft,horovod] [--kills N]
                                      [--settings fast|defaults] [--seed N] [--again] [--json FILE]
                                      [--keep-log FILE] [--quick]

  --venv DIR       folder in which torchft/ (PyTorch, torchft; Starling's workers use it too) and
                   horovod/ (PyTorch 2.0.1, Horovod) are or get installed (default: build)
  --only LIST      of starling, torchft and horovod (default: all)
  --kills N        kills of each system (default 5)
  --settings NAME  timeouts of torchft and Horovod: fast, the fastest that worked on 2 cores, or
                   their defaults (default: fast)
  --seed N         of the choice of who is killed and when (default 1)
  --again          a second undisturbed run of each system: is it the same at all?
  --json FILE      write every figure to FILE as well
  --keep-log FILE  copy the log of a system that broke to FILE
  --quick          1 kill, to see that it runs

Four workers, 0.3 million parameters with dropout, a micro-batch of 25 ms for each worker and step.
Each system trains twice for as many steps: undisturbed, and with one worker after another killed
(SIGKILL) at the same steps. Each is replaced when the others have gone on; the next is killed when
all are there again. The scripts that are run: tools/bench/elastic.
  lines        of code of the script: without model, data, loss, and what notes figures down
  micro-batches, of each kill:
    thrown away  computed, and in no step
    skipped      not in a step that was due to have them, mostly while a worker is missing
    repeated     of samples that another step has had
  pause        longest distance of two commits from a kill to the next, less the median step
  final parameters  whether their bits are those of the undisturbed run, and of two such (--again)

Exit code: 0 done, 1 a system broke, 2 none could be run or bad usage.
TEXT
}

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=build
only=starling,torchft,horovod
passed=()
while [ $# -gt 0 ]; do
  case "$1" in
    --venv) venv=${2:?--venv needs a folder}; shift 2 ;;
    --only) only=${2:?--only needs a list}; shift 2 ;;
    --kills | --settings | --seed | --json | --keep-log) passed+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
    --again | --quick) passed+=("$1"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "compare_elastic.sh: unknown argument '$1'; --help lists them" >&2; exit 2 ;;
  esac
done

wanted() {
  case ",$only," in *",$1,"*) return 0 ;; *) return 1 ;; esac
}

environment() {
  [ -x "$1/bin/python" ] || python3 -m venv "$1" || {
    echo "compare_elastic.sh: python3 -m venv failed; Debian's package is python3-venv" >&2
    exit 2
  }
}

mkdir -p "$venv"
starling=${STARLING:-}
if wanted starling && [ -z "$starling" ]; then
  tools/setup.sh
  cmake --preset release >/dev/null
  cmake --build --preset release -j "$(nproc)" --target starling >/dev/null
fi
starling=${starling:-build/release/starling}

# What cannot be installed is left out; compare_elastic.py says why, by the log.
if wanted starling || wanted torchft; then
  environment "$venv/torchft"
  if ! "$venv/torchft/bin/python" -c 'import numpy, torch' 2>/dev/null; then
    echo "installing PyTorch into $venv/torchft"
    "$venv/torchft/bin/pip" install torch numpy >"$venv/torchft.log" 2>&1 || true
  fi
fi
# The release, 0.2.0, does not survive a kill with gloo; the nightly does.
if wanted torchft && ! "$venv/torchft/bin/python" -c 'import torchft' 2>/dev/null; then
  echo "installing torchft into $venv/torchft"
  "$venv/torchft/bin/pip" install torchft-nightly >>"$venv/torchft.log" 2>&1 || true
fi
# Horovod's last release, 0.28.1, compiles with PyTorch 2.0.1 and setuptools of its time.
if wanted horovod; then
  environment "$venv/horovod"
  if ! "$venv/horovod/bin/python" -c 'import horovod.torch' 2>/dev/null; then
    echo "installing PyTorch 2.0.1 and Horovod into $venv/horovod, which takes 5 to 30 minutes"
    {
      "$venv/horovod/bin/pip" install torch==2.0.1 'numpy<2' 'setuptools<60' wheel 'cmake<3.28' cffi cloudpickle \
        psutil pyyaml packaging &&
        PATH="$(realpath "$venv/horovod/bin"):$PATH" MAKEFLAGS="-j$(nproc)" HOROVOD_WITH_PYTORCH=1 \
          HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
          "$venv/horovod/bin/pip" install --no-build-isolation horovod==0.28.1
    } >"$venv/horovod.log" 2>&1 || true
  fi
fi
exec python3 tools/bench/compare_elastic.py --starling "$starling" --venv "$venv" --only "$only" "${passed[@]}"
