#!/usr/bin/env bash
# From a bare Debian 12 to the point of Starling: trains a small GPT with four workers undisturbed, trains it
# again while one worker is killed with kill -9 and two others join, and compares the two runs bit by bit.
# The last line is the verdict; the exit code is 0 if it held, 1 if not, 2 if a run could not be made.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/quickstart.sh [--built] [--keep] [--help]

Installs what the build needs, builds build/release and trains twice: a quarter of an hour on two cores, all but a
minute of it compiling.
  --built  install and build nothing: build/release is there
  --keep   do not remove the two output folders (events, logs) at the end
TEXT
}

keep=false built=false
for argument in "$@"; do
  case "$argument" in
    --built) built=true ;;
    --keep) keep=true ;;
    -h | --help) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown argument '$argument'; --help lists them" >&2; exit 2 ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly job=examples/gpt/tiny.toml workers=4 steps=60
readonly kill_at=15 join_at=20 run_seconds_max=900
starling=$PWD/build/release/starling

# ---- Cleaning up: however this script ends, nothing of it stays ------------------------------------------
scratch=$(mktemp -d)
run_pid=0
joiner_pids=()
clean_up() {
  local pid
  for pid in "$run_pid" "${joiner_pids[@]}"; do
    [ "$pid" -eq 0 ] || kill "$pid" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  if $keep; then echo "output kept in $scratch"; else rm -rf "$scratch"; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- Reading events.jsonl: one JSON object a line, flat but for lists ------------------------------------
number_of() {  # FIELD LINE
  sed -n "s/.*\"$1\": *\(-\{0,1\}[0-9][0-9.e+-]*\).*/\1/p" <<<"$2"
}
text_of() {  # FIELD LINE
  sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" <<<"$2"
}
events() {  # KIND DIR
  grep "\"ev\": *\"$1\"" "$2/events.jsonl" || true
}
losses() {  # DIR: "version loss" of every step, in order
  local line
  events step "$1" | while read -r line; do
    echo "$(number_of version "$line") $(number_of loss "$line")"
  done | sort -n
}

give_up() {  # MESSAGE DIR
  echo "$1; the end of its log:" >&2
  tail -n 20 "$2/run.log" >&2 || true
  exit 2
}

# ---- One run ---------------------------------------------------------------------------------------------
show() {  # LINE: what a spectator wants to see of an event
  case "$(text_of ev "$1")" in
    step)
      local version
      version=$(number_of version "$1")
      if [ $((version % 5)) -eq 0 ] || [ "$version" -eq $((steps - 1)) ]; then
        printf '  step %3d  loss %-8.6s  workers %s  %.5s ms\n' "$version" "$(number_of loss "$1")" \
          "$(number_of world "$1")" "$(number_of ms "$1")"
      fi ;;
    worker) echo "  worker $(text_of name "$1") $(text_of what "$1")" ;;
    epoch)
      local resume
      resume=$(number_of resume_ms "$1")
      echo "  epoch $(text_of id "$1") ($(text_of kind "$1"))${resume:+, next step ${resume%%.*} ms after the plan}" ;;
  esac
}

disturb() {  # LINE DIR: kills one worker at step kill_at, adds two at step join_at
  [ "$(text_of ev "$1")" = step ] || return 0
  local version line
  version=$(number_of version "$1")
  if [ "$version" -ge $kill_at ] && [ -z "$killed" ]; then
    line=$(events worker "$2" | grep '"what": *"joined"' | sed -n 2p)
    killed=$(number_of pid "$line")
    [ -n "$killed" ] || give_up "no pid of a worker in events.jsonl" "$2"
    echo "  ## kill -9 $killed (worker $(text_of name "$line"))"
    kill -9 "$killed"
  fi
  if [ "$version" -ge $join_at ] && [ ${#joiner_pids[@]} -eq 0 ]; then
    line=$(events start "$2" | head -n 1)
    echo "  ## two workers join $(text_of address "$line")"
    for _ in 1 2; do
      "$starling" worker --save none --join "$(text_of address "$line")" --keys "$(text_of keys "$line")" \
        >>"$2/joiners.log" 2>&1 &
      joiner_pids+=($!)
    done
  fi
}

train() {  # DIR quiet|disturbed: sets nothing but what lies in DIR
  local dir=$1 manner=$2 line status=0
  mkdir -p "$dir"
  killed=""
  timeout "$run_seconds_max" "$starling" run "$job" --workers $workers --steps $steps --threads 1 \
    --out "$dir/out" >"$dir/run.log" 2>&1 &
  run_pid=$!
  ln -s out/events.jsonl "$dir/events.jsonl"
  while [ ! -e "$dir/events.jsonl" ] && kill -0 $run_pid 2>/dev/null; do sleep 0.1; done
  while read -r line; do
    show "$line"
    if [ "$manner" = disturbed ]; then disturb "$line" "$dir"; fi
  done < <(tail -s 0.1 -n +1 -F --pid=$run_pid "$dir/events.jsonl" 2>/dev/null)
  wait $run_pid || status=$?
  run_pid=0
  [ $status -eq 0 ] || give_up "starling run ended with exit code $status" "$dir"
}

# ---- The whole story -------------------------------------------------------------------------------------
SECONDS=0
if ! $built; then
  tools/setup.sh
  tools/dev/configure.sh release >"$scratch/configure.log" 2>&1 || { cat "$scratch/configure.log" >&2; exit 2; }
  to_do=$(ninja -C build/release -n starling 2>/dev/null | sed -n 's/^\[[0-9]*\/\([0-9]*\)\].*/\1/p' | tail -n 1)
  echo "== building build/release: ${to_do:-0} steps on $(nproc) cores, of some seconds each =="
  # Ninja's own lines, [n/all], thinned out; the rest is in the log.
  cmake --build --preset release -j "$(nproc)" --target starling 2>&1 | tee "$scratch/build.log" | awk -F'[][/]' '
    /^\[[0-9]+\/[0-9]+\]/ && $2 >= next_one { print "  " $2 " of " $3; fflush(); next_one = $2 + $3 / 10 }' ||
    { tail -n 40 "$scratch/build.log" >&2; exit 2; }
  echo "built in $SECONDS s: $("$starling" version | head -n 1)"
fi
readonly built_in=$SECONDS

echo "== undisturbed: $workers workers, $steps steps =="
train "$scratch/quiet" quiet
echo "== again, with a kill and two joins =="
train "$scratch/disturbed" disturbed
for pid in "${joiner_pids[@]}"; do wait "$pid" || true; done
joiner_pids=()

echo "== comparing =="
broken=()
digest() { text_of digest "$(events "done" "$1" | tail -n 1)"; }
count() { events worker "$scratch/disturbed" | grep -c "\"what\": *\"$1\"" || true; }
quiet=$(digest "$scratch/quiet")
disturbed=$(digest "$scratch/disturbed")
echo "digest undisturbed  $quiet"
echo "digest disturbed    $disturbed"
[ -n "$quiet" ] && [ "$quiet" = "$disturbed" ] || broken+=("digests differ")
losses "$scratch/quiet" >"$scratch/quiet.losses"
losses "$scratch/disturbed" >"$scratch/disturbed.losses"
[ "$(wc -l <"$scratch/quiet.losses")" -eq $steps ] || broken+=("not every step is in events.jsonl")
cmp -s "$scratch/quiet.losses" "$scratch/disturbed.losses" || broken+=("losses of steps differ")
[ "$(count lost)" -ge 1 ] || broken+=("the kill was not noticed")
[ "$(count joined)" -ge $((workers + 2)) ] || broken+=("the two new workers did not join in time")
while read -r pid; do
  if kill -0 "$pid" 2>/dev/null; then broken+=("process $pid was left behind"); fi
done < <(for run in quiet disturbed; do
  events worker "$scratch/$run" | while read -r line; do number_of pid "$line"; done
done | sort -u)

if [ ${#broken[@]} -gt 0 ]; then
  printf -v reasons '%s, ' "${broken[@]}"
  echo "verdict: broken (${reasons%, })"
  exit 1
fi
echo "verdict: held ($steps steps and the final state have the same bits; 1 worker killed, 2 joined; $((SECONDS - built_in)) s)"
