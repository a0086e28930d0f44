#!/usr/bin/env bash
# What only a GPU can show, in some ten minutes on one. A time limit for every stage, a JSON object a stage in a
# file, one table at the end. Needs a bundle or a build tree, bash, coreutils and the driver's nvidia-smi;
# Python, PyTorch, ncu and compute-sanitizer for the stages that say so.
set -euo pipefail

self=$(realpath "${BASH_SOURCE[0]}")
root=${self%/tools/*}
readonly no_gpu=77

# ---- The stages: seconds at most, what they show, and the figures without which a stage has not run --------
stages=(facts model same speed kernels tune grid train kill nccl transport torch script sanitizer)
declare -A limit_of=([facts]=45 [grid]=120 [sanitizer]=300 [model]=25 [same]=60 [speed]=120 [kernels]=90 [tune]=120 [torch]=210 [script]=220
  [train]=120 [kill]=120 [nccl]=60 [transport]=120)
readonly rehearsable=" train kill nccl transport "  # without a GPU, too; each starts processes, of which none may be left
declare -A about=(
  [facts]="card, driver, versions; how fast the card copies and multiplies (the latter with PyTorch)"
  [grid]="gpu_tests: every kernel on the card against the host: equal bits, or within a tolerance"
  [sanitizer]="gpu_tests under compute-sanitizer: memcheck, then racecheck of those whose kernels share memory"
  [model]="starling check: losses, gradients and states against the reference files, fp32, bf16 and fp16"
  [same]="starling-bench device --same: one gradient again and again, alone, beside others, as a graph"
  [speed]="starling-bench device --speed: GPT-2 124M, tokens/s"
  [kernels]="the time of each kernel of a micro-batch (ncu), beside what it takes at least"
  [tune]="starling-bench device --tune: which algorithms of cuBLASLt are fastest; tokens/s with them"
  [torch]="the same model in PyTorch (torch.compile, bf16, flash attention), deterministic or not"
  [script]="transformers' GPT-2 124M by a script: a job of 1 and of 2 workers on the card beside a loop of PyTorch"
  [train]="300 steps of a small GPT by one worker and by three on the one card: the same digest"
  [kill]="the same run while one of three workers is killed (kill -9): who notices when; the same digest"
  [nccl]="transport_times: communicators of two processes on the one card, made, used, given up: times, and nothing is left"
  [transport]="three workers, bytes over NCCL, one is killed (kill -9): change-over, and again after it; the digest over TCP"
)
declare -A needed=(
  [facts]="card driver starling" [grid]="cases" [sanitizer]="memcheck_errors racecheck_hazards"
  [model]="checks" [same]="lines" [speed]="lines" [kernels]="micro_batch_ms" [tune]="plans tokens_per_s" [torch]="tokens_per_s" [script]="digest tokens_per_s plain_tokens_per_s" [train]="digest steps"
  [kill]="kills guard_ms commit_ms" [nccl]="making_ms cycles" [transport]="kills device_steps commit_ms"
)

usage() {
  cat <<'TEXT'
Usage: tools/gpu_check.sh [--out FOLDER] [--build FOLDER] [--limit SECONDS] [--pack FILE] [--rehearse] [--list] [STAGE...]

Runs the named stages, or all, in the order of --list, and ends with a table. One that fails or hangs keeps no
other from running.
  --out FOLDER     results.jsonl, and for each stage its log (default: gpu_check)
  --build FOLDER   programs of a build tree (default: those of the bundle that this script lies in, else of
                   build/release)
  --limit SECONDS  of every stage, instead of its own
  --pack FILE      FOLDER as one archive (.tar.gz), written anew after each stage: for a machine that gives back
                   few files, or ends in the middle
  --rehearse       without a GPU: train, kill, and nccl and transport with a stand-in for NCCL that only a build
                   tree has, on the emulated device; all else is skipped. Shows that this script works, and
                   nothing of a GPU; every line says so
  --list           the stages, with their limits, and nothing else
Environment: PYTHON  the interpreter that has PyTorch (default: python3)

In nccl and transport several processes share the card, each a host of its own to NCCL: nothing of NCCL's speed
shows there.

status  ok       ran to its end and gave the figures that it is there for, and they are right
        failed   did not; the table says why, and FOLDER/STAGE.log has all that was printed
        skipped  something is not there that Starling does not bring (PyTorch, ncu, compute-sanitizer, NCCL)
Exit code: 0 nothing failed, 1 something did, 2 bad arguments, 77 no GPU, or all stages were skipped.

  tools/gpu_check.sh                      everything
  tools/gpu_check.sh grid same            two stages
  tools/gpu_check.sh --limit 300 speed    more time than usual
TEXT
}

# ---- What stages are written with --------------------------------------------------------------------------
# A stage is a function below, run by this script once more in a process group of its own. It gives figures,
# says in a few words what it saw, and ends with 0 (if right), 77 (skipped) or anything else.

# The last line of a log that is not empty.
last_line() { grep . "$1" 2>/dev/null | tail -n 1 || true; }
one_line() { tr -s '[:cntrl:] ' ' ' <<<"$1" | sed 's/^ //; s/ $//'; }
quoted() {  # TEXT: as a JSON string
  local text
  text=$(one_line "$1")
  text=${text//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}
figure() {  # NAME VALUE: none if there is no value
  local value=$2
  [ -n "$value" ] || return 0
  [[ $value =~ ^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false|null)$ ]] || value=$(quoted "$value")
  local figures=$GPU_CHECK_OUT/$GPU_CHECK_STAGE.figures
  # What is said again replaces what was said.
  [ ! -e "$figures" ] || sed -i "/^$1 /d" "$figures"
  printf '%s %s\n' "$1" "$value" >>"$figures"
}
say() { printf '%s\n' "$1" >>"$GPU_CHECK_OUT/$GPU_CHECK_STAGE.text"; }
skip() { say "$1"; exit $no_gpu; }
give_up() { say "$1"; exit 1; }

# The value of a field in JSON objects of one line each, flat ones of our own programs.
field() {  # NAME TEXT
  grep -oE "\"$1\": *(\"[^\"]*\"|[-0-9.eE+]+|true|false|null)" <<<"$2" | sed "s/^\"$1\": *//; s/^\"//; s/\"\$//" || true
}
round() { awk '{ printf "%.1f", $1 }'; }
# Runs a program, shows its output, and keeps the JSON objects in it. Its exit code counts.
json_of() {  # PROGRAM ARGUMENTS...
  local status=0
  "$@" 2>&1 | tee "$work/output" || status=$?
  grep -E '^\{.*\}$' "$work/output" >"$work/lines" || true
  # As they are, into the stage's line of the results.
  cat "$work/lines" >>"$GPU_CHECK_OUT/$GPU_CHECK_STAGE.lines"
  return $status
}
python_or_skip() {
  command -v "$python" >/dev/null || skip "no Python here ($python)"
}
gpu_tests_or_fail() {
  [ -x "$tests/gpu_tests" ] || give_up "$tests/gpu_tests is not there: built without CUDA"
}

# ---- The stages --------------------------------------------------------------------------------------------
stage_facts() {
  local names=(card driver memory_mib sm_clock_max_mhz compute_capability mig) values i
  IFS=, read -ra values < <(nvidia-smi --format=csv,noheader,nounits \
    --query-gpu=name,driver_version,memory.total,clocks.max.sm,compute_cap,mig.mode.current | head -n 1)
  for i in "${!names[@]}"; do figure "${names[i]}" "$(xargs <<<"${values[i]:-}")"; done
  nvidia-smi
  "$starling" version
  figure starling "$("$starling" version | sed -n '1s/^starling //p')"
  figure gpu "$("$starling" version | sed -n 's/^gpu *//p')"
  [ ! -e "$root/MANIFEST" ] || figure commit "$(sed -n 's/^commit *//p' "$root/MANIFEST")"
  local line name status=0
  json_of "$python" "$root/tools/gpu_torch.py" --ceilings || status=$?
  case $status in
    0) ;;
    "$no_gpu" | 127) say "rates not measured ($(last_line "$work/output"))"; return ;;
    *) give_up "gpu_torch.py --ceilings, exit code $status: $(last_line "$work/output")" ;;
  esac
  line=$(cat "$work/lines")
  for name in torch cuda nccl copy_gb_per_s product_tflop_per_s; do figure "$name" "$(field "$name" "$line")"; done
  say "copies $(field copy_gb_per_s "$line") GB/s, multiplies $(field product_tflop_per_s "$line") TFLOP/s; PyTorch $(field torch "$line")"
}

# doctest's last words: "[doctest] test cases:  12 |  12 passed | 0 failed | 3 skipped".
cases_passed() { sed -n 's/.*test cases: *[0-9]* *| *\([0-9]*\) passed.*/\1/p' "$1" | tail -n 1; }

stage_grid() {
  gpu_tests_or_fail
  local status=0 cases
  (cd "$root" && "$tests/gpu_tests") 2>&1 | tee "$work/output" || status=$?
  cases=$(cases_passed "$work/output")
  [ $status -eq 0 ] || give_up "gpu_tests ended with exit code $status; ${cases:-no} cases passed"
  [ "${cases:-0}" -gt 0 ] || give_up "gpu_tests ran no case"
  figure cases "$cases"
  say "$cases cases passed"
}

# The cases that work long on the host are left out; what races needs memory that threads share.
stage_sanitizer() {
  gpu_tests_or_fail
  local tool summary count status cases
  command -v compute-sanitizer >/dev/null || skip "no compute-sanitizer here"
  declare -A summary=([memcheck]='ERROR SUMMARY: \([0-9]*\) error.*' [racecheck]='RACECHECK SUMMARY: \([0-9]*\) hazard.*')
  declare -A name=([memcheck]=memcheck_errors [racecheck]=racecheck_hazards)
  declare -A chosen=([memcheck]='cuda *,attention over*,attention has*,own products with*,layer norm*,column sums*,embedding*,positions*,losses*,net: in *'
    [racecheck]='attention over*,attention has*,own products with many*,layer norm: a*,column sums*,losses*,embedding*')
  for tool in memcheck racecheck; do
    status=0
    (cd "$root" && compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests/gpu_tests" "--test-case=${chosen[$tool]}" --test-suite-exclude=long) 2>&1 |
      tee "$work/output" || status=$?
    count=$(sed -n "s/.*${summary[$tool]}/\1/p" "$work/output" | tail -n 1)
    cases=$(cases_passed "$work/output")
    [ -n "$count" ] || give_up "$tool gave no summary (exit code $status)"
    figure "${name[$tool]}" "$count"
    figure "${tool}_cases" "${cases:-0}"
    say "$tool: $count findings in ${cases:-0} cases, exit code $status"
    [[ $status -eq 0 && $count -eq 0 && ${cases:-0} -gt 0 ]] || exit 1
  done
}

stage_model() {
  local file precision option status count=0 failed=()
  for file in "$root"/tests/fixtures/*.safetensors; do
    for precision in fp32 bf16 fp16; do
      # With numbers of 8 or 11 bits some of a classifier's ReLUs change sides, and its gradient jumps.
      [[ $precision = fp32 || ${file##*/} = gpt* ]] || continue
      echo "== $file, $precision"
      status=0 option=""
      [ $precision = fp32 ] || option=--$precision
      # shellcheck disable=SC2086  # no argument at all if empty
      "$starling" check "$file" --isa cuda $option 2>&1 | tee "$work/output" || status=$?
      if [ $status -ne 0 ]; then
        failed+=("${file##*/} $precision: $(grep -vE ' ok ' "$work/output" | tail -n 1)")
      elif grep -qE '^model .*, isa cuda' "$work/output"; then
        count=$((count + $(grep -cE '  off .* ok( |$)' "$work/output" || true)))
        figure "device_$precision" "$(sed -n 's/^model .*, isa //p' "$work/output")"
      else
        failed+=("${file##*/} $precision: it did not say that it computed with cuda")
      fi
    done
  done
  figure checks $count
  for file in "${failed[@]}"; do say "$file"; done
  [ ${#failed[@]} -eq 0 ] || give_up "${#failed[@]} of the files and precisions"
  [ $count -gt 0 ] || give_up "nothing was compared"
  say "$count comparisons within their bounds"
}

device_bench() {  # --same or --speed, and more
  json_of "$starling-bench" device "$@" --json ||
    give_up "starling-bench device $1: exit code $?, $(last_line "$work/output")"
  local lines
  lines=$(grep -c . "$work/lines" || true)
  [ "$lines" -gt 0 ] || give_up "starling-bench device $1 gave no figures"
  figure lines "$lines"
}

stage_same() {
  device_bench --same
  # One line a shape; each shape has a gradient of its own, and that one hash again and again.
  local line hash count sequences
  while read -r line; do
    hash=$(field hash "$line") count=$(field hashes "$line") sequences=$(field sequences "$line")
    [ -n "$hash" ] || give_up "no hash was told: $line"
    [ "$count" = 1 ] || give_up "${count:-no} different gradients of $sequences sequences"
    figure "hash_$sequences" "$hash"
    say "$(field n "$line") gradients of $sequences sequences, one hash"
  done <"$work/lines"
}

stage_speed() {
  device_bench --speed
  local best
  best=$(field tokens_per_s "$(cat "$work/lines")" | sort -g | tail -n 1)
  [ -n "$best" ] || give_up "no tokens_per_s was told"
  figure tokens_per_s "$best"
  say "$best tokens/s at best"
}

stage_kernels() {
  python_or_skip
  command -v ncu >/dev/null || skip "no ncu here"
  # Three micro-batches: one as it is asked for, one while it is captured, one as graphs.
  ncu --clock-control none --graph-profiling node --metrics gpu__time_duration.sum --csv --page raw --launch-count 1500 \
    "$starling-bench" device --speed --sequences 16 --threads 1 --micro-batches 1 >"$GPU_CHECK_OUT/kernels.csv" 2>"$work/output" || {
    cat "$work/output" "$GPU_CHECK_OUT/kernels.csv"
    ! grep -qE "ERR_NVGPUCTRPERM|LibraryNotLoaded" "$work/output" "$GPU_CHECK_OUT/kernels.csv" ||
      skip "ncu may not read this machine's counters"
    give_up "ncu: $(last_line "$work/output")"
  }
  local card=H100
  ! nvidia-smi --query-gpu=name --format=csv,noheader | grep -q H200 || card=H200
  "$python" "$root/tools/bench/gpu_kernels.py" "$GPU_CHECK_OUT/kernels.csv" --card $card
  json_of "$python" "$root/tools/bench/gpu_kernels.py" "$GPU_CHECK_OUT/kernels.csv" --card $card --json ||
    give_up "gpu_kernels.py: exit code $?"
  local whole
  whole=$(grep '"micro-batch"' "$work/lines" || true)
  figure micro_batch_ms "$(field ms "$whole")"
  figure limit_ms "$(field limit_ms "$whole")"
  say "kernels of a micro-batch take $(field ms "$whole" | round) ms; at least $(field limit_ms "$whole" | round) ($card)"
}

stage_tune() {
  local plans=$GPU_CHECK_OUT/plans.txt best
  "$starling-bench" device --tune "$plans" || give_up "starling-bench device --tune: exit code $?"
  figure plans "$(grep -vc '^#' "$plans" || true)"
  export STARLING_CUDA_PLANS=$plans
  device_bench --speed --sequences 16
  best=$(field tokens_per_s "$(cat "$work/lines")" | sort -g | tail -n 1)
  figure tokens_per_s "$best"
  say "$best tokens/s with the table; it is in $plans"
}

stage_torch() {
  python_or_skip
  # Each mode compiles anew, most of all the first.
  local mode begun=$SECONDS seconds best ours status
  local -A name=([flash]=tokens_per_s [cudnn]=cudnn_tokens_per_s [deterministic]=deterministic_tokens_per_s)
  local -A options=([flash]="" [cudnn]="--attention cudnn" [deterministic]="--deterministic")
  # Of as many sequences as PyTorch is given.
  ours=$(field tokens_per_s "$(grep '"sequences":16,' "$GPU_CHECK_OUT/speed.lines" 2>/dev/null || true)" | sort -g | tail -n 1)
  for mode in flash cudnn deterministic; do
    status=0 seconds=$((GPU_CHECK_LIMIT - (SECONDS - begun) - 5))
    if [ "$mode" != flash ] && [ $seconds -lt 60 ]; then say "$mode: no time left"; continue; fi
    # shellcheck disable=SC2086  # no argument at all if empty
    json_of "$python" "$root/tools/gpu_torch.py" --sequences 16 --seconds "$seconds" ${options[$mode]} || status=$?
    [ $status -ne $no_gpu ] || skip "$(last_line "$work/output")"
    [ $status -eq 0 ] || give_up "gpu_torch.py ${options[$mode]}, exit code $status: $(last_line "$work/output")"
    best=$(field micro_tokens_per_s "$(cat "$work/lines")" | sort -g | tail -n 1)
    [ -n "$best" ] || give_up "gpu_torch.py ${options[$mode]} measured nothing"
    figure "${name[$mode]}" "$best"
    say "$mode: $best tokens/s${ours:+, of which Starling has $(awk -v a="$ours" -v b="$best" 'BEGIN { printf "%.2f", a / b }')}"
  done
}

# PyTorch's own algorithms, those that repeat themselves, and a job, which computes with the latter.
stage_script() {
  python_or_skip
  local name digest="" found best status options
  local -A of=([plain]="--plain" [deterministic]="--plain --deterministic" [job]="" [two]="--workers 2")
  export STARLING=$starling PYTHONPATH=$root/tools/python${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1
  for name in plain deterministic job two; do
    status=0 options=${of[$name]}
    [[ $options = --plain* ]] || options+=" --out $work/$name"
    # shellcheck disable=SC2086  # several arguments
    json_of "$python" "$root/tools/gpu_script.py" $options || status=$?
    [ $status -ne $no_gpu ] || skip "$(last_line "$work/output")"
    [ $status -eq 0 ] || give_up "gpu_script.py $options, exit code $status: $(last_line "$work/output")"
    best=$(field tokens_per_s "$(cat "$work/lines")")
    [ -n "$best" ] || give_up "gpu_script.py $options measured nothing"
    found=$(field digest "$(cat "$work/lines")")
    case $name in
      plain) figure plain_tokens_per_s "$best" ;;
      deterministic) figure deterministic_tokens_per_s "$best" && say "plain PyTorch, deterministic: $best tokens/s" ;;
      job) figure tokens_per_s "$best" && say "a job: $best tokens/s" && digest=$found ;;
      two) [[ -n $digest && $found = "$digest" ]] || give_up "digest of 1 worker $digest, of 2 $found" ;;
    esac
  done
  figure digest "$digest"
  say "digest $digest of 1 and 2 workers"
}

# Widths with which the card's own kernels run; the emulated device computes on the CPU.
write_job() {  # FILE
  local layers=4 heads=4 width=256 context=256 sequences=8
  if [ "$isa" != cuda ]; then layers=2 heads=2 width=32 context=32 sequences=2; fi
  cat >"$1" <<TEXT
[job]
name = "gpu-check"
steps = 300
micro_batches = 6
sequences = $sequences
precision = "bf16"
isa = "$isa"
[model]
kind = "gpt"
layers = $layers
heads = $heads
width = $width
context = $context
vocabulary = 256
[optimizer]
kind = "adamw"
peak_rate = 1e-3
warmup_steps = 10
[data]
kind = "text"
path = "$root/docs"
extensions = [".md"]
[elastic]
start_timeout_ms = 60000
TEXT
}

stage_train() {
  write_job "$work/job.toml"
  local workers digest first="" losses begun seconds
  for workers in 1 3; do
    begun=$(date +%s.%N)
    # NCCL takes several ranks on one card only for tests; here it would be asked in vain, again and again.
    "$starling" run "$work/job.toml" --workers $workers --transport tcp --out "$work/$workers" ||
      give_up "starling run --workers $workers: exit code $?"
    seconds=$(awk -v a="$begun" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
    figure "seconds_w$workers" "$seconds"
    digest=$(field digest "$(grep '"ev":"done"' "$work/$workers/events.jsonl")")
    [ -n "$digest" ] || give_up "no digest of $workers workers"
    losses=$(sed -n 's/.*"ev":"step","version":\([0-9]*\),.*"loss":\([-0-9.e+]*\),.*/\1 \2/p' "$work/$workers/events.jsonl" |
      sort -n | cut -d ' ' -f 2)
    figure "loss_first_w$workers" "$(head -n 1 <<<"$losses")"
    figure "loss_last_w$workers" "$(tail -n 1 <<<"$losses")"
    [ "$workers" -ne 1 ] || first=$digest
  done
  figure digest "$first"
  figure steps "$(wc -l <<<"$losses")"
  [ "$first" = "$digest" ] || give_up "digest $first of one worker, $digest of three"
  [ "$(wc -l <<<"$losses")" -eq 300 ] || give_up "$(wc -l <<<"$losses") steps of 300 in the events"
  awk -v a="$(head -n 1 <<<"$losses")" -v b="$(tail -n 1 <<<"$losses")" 'BEGIN { exit !(b < a - 1) }' ||
    give_up "the loss does not fall"
  say "digest $first of 1 and 3 workers; loss $(head -n 1 <<<"$losses" | cut -c 1-4) to $(tail -n 1 <<<"$losses" | cut -c 1-4)"
}

# kill_times.py with three workers, two runs with a kill; leaves its JSON object in `kills`.
kill_runs() {  # ARGUMENTS...
  python_or_skip
  write_job "$work/job.toml"
  "$python" "$root/tools/bench/kill_times.py" "$starling" "$work/job.toml" --workers 3 --kills 2 --json "$work/lines" "$@" ||
    give_up "kill_times.py: exit code $?: a digest or a ledger is not as it should be"
  [ -s "$work/lines" ] || give_up "kill_times.py gave no figures"
  kills=$(cat "$work/lines")
  cat "$work/lines" >>"$GPU_CHECK_OUT/$GPU_CHECK_STAGE.lines"
  local name
  for name in kills digest guard_ms peers_ms detect_ms form_ms resume_ms commit_ms step_ms; do
    figure $name "$(field $name "$kills")"
  done
}

stage_kill() {
  kill_runs --steps 300 --quiet-transport tcp --transport tcp
  say "the guard's word after $(field guard_ms "$kills" | round) ms, the next commit after $(field commit_ms "$kills" | round) ms; the same digest"
}

nccl_or_skip() {
  export STARLING_NCCL_SHARED_GPU=1
  [ "$isa" != cuda ] || return 0
  STARLING_NCCL=${starling%/*}/tests/nccl/libfake_nccl.so
  [ -e "$STARLING_NCCL" ] || skip "a rehearsal: the stand-in for NCCL is not there, $STARLING_NCCL"
  export STARLING_NCCL
}

stage_nccl() {
  nccl_or_skip
  local program=$tests/transport_times name lines plugin
  [ -x "$program" ] || program=${starling%/*}/tests/nccl/transport_times
  [ -x "$program" ] || give_up "transport_times is not there"
  # A program of the tests lies elsewhere than what the plugin is looked for beside.
  for plugin in "$root/lib/starling/libstarling_cuda.so" "${starling%/*}/kernels/cuda/libstarling_cuda.so"; do
    [[ -n ${STARLING_PLUGIN:-} || ! -e $plugin ]] || export STARLING_PLUGIN=$plugin
  done
  if ! json_of "$program" --isa "$isa" --cycles 15; then
    ! grep -q "NCCL is at none of" "$work/output" || skip "$(last_line "$work/output")"
    give_up "$(last_line "$work/output")"
  fi
  for name in making round revoke abort; do
    lines=$(grep "\"name\":\"$name\"" "$work/lines" || true)
    figure "${name}_first_ms" "$(field first_ms "$lines")"
    figure "${name}_second_ms" "$(field second_ms "$lines")"
    figure "${name}_ms" "$(field median_ms "$lines")"
  done
  lines=$(cat "$work/lines")
  figure cycles "$(field cycles "$lines")"
  lines=$(grep '"name":"making"' <<<"$lines" || true)
  say "made in $(field first_ms "$lines" | round) ms, then in $(field median_ms "$lines" | round) ms; nothing is left"
}

stage_transport() {
  nccl_or_skip
  kill_runs --steps 100 --quiet-transport tcp
  local name path
  for name in device_steps device_again path; do figure $name "$(field $name "$kills")"; done
  path=$(field path "$kills")
  [[ $path != *"NCCL is at none of"* ]] || skip "$path"
  [ "$(field device_steps "$kills")" -gt 0 ] || give_up "no step went over NCCL: $path"
  [ "$(field device_again "$kills")" -gt 0 ] || give_up "no step went over NCCL after a kill: $path"
  say "$(field device_steps "$kills") steps over $path, also after $(field device_again "$kills") of $(field kills "$kills") kills"
  say "the next commit after $(field commit_ms "$kills" | round) ms; the digest over TCP"
}

# ---- One stage, in this script's second life ---------------------------------------------------------------
if [ -n "${GPU_CHECK_STAGE:-}" ]; then
  starling=$GPU_CHECK_STARLING tests=$GPU_CHECK_TESTS isa=$GPU_CHECK_ISA python=${PYTHON:-python3}
  work=$GPU_CHECK_OUT/$GPU_CHECK_STAGE.work
  mkdir "$work"
  "stage_$GPU_CHECK_STAGE"
  exit 0
fi

# ---- Arguments ---------------------------------------------------------------------------------------------
bad() { echo "gpu_check.sh: $1; --help says more" >&2; exit 2; }
out=gpu_check build="" limit="" pack="" isa=cuda chosen=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --list)
      for stage in "${stages[@]}"; do printf '%-10s %4d s  %s\n' "$stage" "${limit_of[$stage]}" "${about[$stage]}"; done
      exit 0 ;;
    --rehearse) isa=emulated; shift ;;
    --out | --build | --limit | --pack)
      [ $# -gt 1 ] || bad "$1 needs a value"
      case "$1" in --out) out=$2 ;; --build) build=$2 ;; --limit) limit=$2 ;; --pack) pack=$(realpath -m "$2") ;; esac
      shift 2 ;;
    *)
      [ -n "${limit_of[$1]:-}" ] || bad "no stage or option '$1'"
      chosen+=("$1"); shift ;;
  esac
done
[[ -z $limit || $limit =~ ^[1-9][0-9]{0,4}$ ]] || bad "--limit must be seconds, is '$limit'"
# Chosen ones in the order of --list as well: speed before torch, which compares.
if [ ${#chosen[@]} -gt 0 ]; then
  ordered=()
  for stage in "${stages[@]}"; do [[ " ${chosen[*]} " != *" $stage "* ]] || ordered+=("$stage"); done
  stages=("${ordered[@]}")
fi

if [ -z "$build" ] && [ -x "$root/bin/starling" ]; then
  GPU_CHECK_STARLING=$root/bin/starling GPU_CHECK_TESTS=$root/bin/tests
else
  build=$(realpath -m "${build:-$root/build/release}")
  GPU_CHECK_STARLING=$build/starling GPU_CHECK_TESTS=$build/tests
  [ ! -x "$build/tests/cuda/gpu_tests" ] || GPU_CHECK_TESTS=$build/tests/cuda
fi
[ -x "$GPU_CHECK_STARLING" ] || bad "$GPU_CHECK_STARLING is not there (build it, or name another build with --build)"

# ---- Is there a GPU? ---------------------------------------------------------------------------------------
card="no GPU; imitated on the CPU" driver=""
if [ "$isa" = cuda ]; then
  if ! command -v nvidia-smi >/dev/null; then
    echo "gpu_check.sh: no GPU: there is no nvidia-smi"
    exit $no_gpu
  fi
  found=$(timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1) || {
    echo "gpu_check.sh: no GPU: nvidia-smi says: $(head -n 1 <<<"$found")"
    exit $no_gpu
  }
  if [[ $found != *,* ]]; then
    echo "gpu_check.sh: no GPU: nvidia-smi says: $found"
    exit $no_gpu
  fi
  card=$(head -n 1 <<<"$found")
  driver=${card##*, } card=${card%, *}
fi

# PyTorch's packages have the libraries of NVIDIA's that the plugin looks for, wherever Python has them.
find_packages='import os, sys; print(":".join(p for p in sys.path if os.path.isdir(os.path.join(p, "nvidia"))))'
if [ -z "${STARLING_PYTHON_LIBS:-}" ] && packages=$("${PYTHON:-python3}" -c "$find_packages" 2>/dev/null) && [ -n "$packages" ]; then
  export STARLING_PYTHON_LIBS=$packages
fi

# ---- Running them ------------------------------------------------------------------------------------------
mkdir -p "$out"
out=$(realpath "$out")
results=$out/results.jsonl
for stage in "${!limit_of[@]}"; do rm -rf "$out/$stage".{log,figures,text,lines,work}; done
rm -f "$out"/{plans.txt,kernels.csv}
: >"$results"
running=0

# Whatever a stage has started and left running, in whatever process group; known by what it was given. No
# process of anybody else has it.
end_rest_of() {  # STAGE: how many there were
  local pid count=0
  while IFS=/ read -r _ _ pid _; do
    if kill -KILL "$pid" 2>/dev/null; then count=$((count + 1)); fi
  done < <(grep -lsz "^GPU_CHECK_RUN=$$-$1\$" /proc/[0-9]*/environ)
  echo $count
}
interrupted() {
  trap '' INT TERM
  [ "$running" -eq 0 ] || kill "$running" 2>/dev/null || true
  sleep 0.5
  end_rest_of "$stage" >/dev/null
  rm -rf "$out/$stage.work"
  echo "gpu_check.sh: interrupted in $stage; $results has what was done before" >&2
  exit 130
}
trap interrupted INT TERM

run_stage() {  # STAGE: sets status, text, seconds
  local stage=$1 most=${limit:-${limit_of[$1]}} code=0 begun name left
  begun=$(date +%s.%N)
  if [ "$isa" != cuda ] && [[ $rehearsable != *" $stage "* ]]; then
    status=skipped text="a rehearsal: it needs a GPU" seconds=0
    return
  fi
  GPU_CHECK_STAGE=$stage GPU_CHECK_OUT=$out GPU_CHECK_LIMIT=$most GPU_CHECK_ISA=$isa GPU_CHECK_RUN=$$-$stage \
    GPU_CHECK_STARLING=$GPU_CHECK_STARLING GPU_CHECK_TESTS=$GPU_CHECK_TESTS \
    timeout --kill-after=5 "$most" bash "$self" >"$out/$stage.log" 2>&1 </dev/null &
  running=$!
  wait $running || code=$?
  running=0
  left=$(end_rest_of "$stage")
  rm -rf "$out/$stage.work"
  seconds=$(awk -v a="$begun" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
  text=$(sed '$!s/$/;/' "$out/$stage.text" 2>/dev/null || true)
  case $code in
    0) status=ok ;;
    "$no_gpu") status=skipped ;;
    124 | 137) status=failed text="over its limit of $most s${text:+; before that: $text}" ;;
    *) status=failed text=${text:-"exit code $code; the log ends with: $(last_line "$out/$stage.log")"} ;;
  esac
  if [ $status = ok ]; then
    for name in ${needed[$stage]}; do
      if ! grep -q "^$name ." "$out/$stage.figures" 2>/dev/null; then
        status=failed text="it ended without its figure '$name'"
      fi
    done
    # A run that ends leaves nothing behind (P6).
    if [ "$left" -gt 0 ] && [[ $rehearsable == *" $stage "* ]]; then
      status=failed text="$left processes were left behind; $text"
    fi
  fi
  text=$(one_line "$text")
}

note_stage() {  # STAGE: one JSON object
  local figures lines
  figures=$(sed 's/^\([^ ]*\) \(.*\)$/"\1":\2/' "$out/$1.figures" 2>/dev/null | paste -sd , || true)
  lines=$(paste -sd , "$out/$1.lines" 2>/dev/null || true)
  printf '{"stage":"%s","status":"%s","seconds":%s,"figures":{%s},"lines":[%s],"text":%s,"card":%s,"driver":%s,"rehearsal":%s,"time":"%s"}\n' \
    "$1" "$status" "$seconds" "$figures" "$lines" "$(quoted "$text")" "$(quoted "$card")" "$(quoted "$driver")" \
    "$([ "$isa" = cuda ] && echo false || echo true)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >>"$results"
}

declare -A count=([ok]=0 [failed]=0 [skipped]=0)
table=()
SECONDS=0
for stage in "${stages[@]}"; do
  printf '%-10s ' "$stage" >&2
  run_stage "$stage"
  note_stage "$stage"
  [ -z "$pack" ] || { tar czf "$pack.part" -C "${out%/*}" "${out##*/}" && mv "$pack.part" "$pack"; }
  count[$status]=$((count[$status] + 1))
  printf '%s, %s s\n' "$status" "$seconds" >&2
  table+=("$(printf '%-10s %-8s %6s  %s' "$stage" "$status" "$seconds" "$text")")
done

echo
echo "gpu_check, $(date -u +%Y-%m-%d): $card${driver:+, driver $driver}"
printf '%-10s %-8s %6s  %s\n' stage status s "what it showed"
printf '%s\n' "${table[@]}"
echo "${count[ok]} ok, ${count[failed]} failed, ${count[skipped]} skipped in $SECONDS s; $results"
[ "${count[failed]}" -eq 0 ] || exit 1
[ "${count[ok]}" -gt 0 ] || exit $no_gpu
