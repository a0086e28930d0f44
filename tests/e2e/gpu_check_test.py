"""tools/gpu_check.sh without a GPU: stand-ins answer as the driver, the tools and the commands on such a machine
do, or fail, hang, stay silent or lie. What is shown here is the script; of a GPU it shows nothing."""
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time

from harness import SOURCE, STARLING, environment, main, processes_naming, require, wait_until

BUILD = os.path.dirname(STARLING)
FAKE_NCCL = os.path.join(BUILD, "tests", "nccl", "libfake_nccl.so")
PLUGIN = os.path.join(BUILD, "tests", "cuda", "libstarling_cuda_imitated_plugin.so")
FIXTURES = os.path.join(SOURCE, "tests", "fixtures")
STAGES = ["facts", "model", "same", "speed", "kernels", "tune", "grid", "train", "kill", "nccl", "transport", "torch", "script", "sanitizer"]

# ---- Stand-ins, each a shell script -------------------------------------------------------------------------
NVIDIA_SMI = """
case "$*" in
  *memory.total*) echo "NVIDIA H100 80GB HBM3, 580.159.04, 81559, 1980, 9.0, [N/A]" ;;
  *name,driver*) echo "NVIDIA H100 80GB HBM3, 580.159.04" ;;
esac
"""
CASES = "[doctest] test cases: {0} | {0} passed | 0 failed | 0 skipped"
GPU_TESTS = f'echo "{CASES.format(12)}"'
SANITIZER = f"""
echo "{CASES.format(9)}"
case "$*" in
  *memcheck*) echo "========= ERROR SUMMARY: 0 errors" ;;
  *racecheck*) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
esac
"""
NCU = """
echo '"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum"'
echo '"","","","","ns"'
for kernel in "classify<Half<1>, 1>(int)" "add_sequences(int)" "add_kernel(int)" "classify<Half<1>, 1>(int)"; do
  echo '"0","'"$kernel"'","(1, 1, 1)","(1, 1, 1)","1,000,000"'
done
"""
PYTHON = """
case "$*" in
  *--ceilings*) echo '{"name": "ceilings", "torch": "2.11.0", "cuda": "13.0", "nccl": "2.28.9", "copy_gb_per_s": 3000.5, "product_tflop_per_s": 790.0}' ;;
  *gpu_script*--plain*) echo '{"what": "plain PyTorch", "tokens_per_s": 150000}' ;;
  *gpu_script*) echo '{"what": "a job of Starling", "tokens_per_s": 140000, "digest": "cafe"}' ;;
  *--deterministic*) echo '{"name": "gpt2-124m", "sequences": 16, "micro_tokens_per_s": 350000}' ;;
  *cudnn*) echo '{"name": "gpt2-124m", "sequences": 16, "micro_tokens_per_s": 390000}' ;;
  *gpu_torch*) echo '{"name": "gpt2-124m", "sequences": 16, "micro_tokens_per_s": 400000}' ;;
  *) exec python3 "$@" ;;
esac
"""
# Runs are real, on the emulated device and of a size for a CPU.
RUN = """
job=$2
sed -i 's/isa = "cuda"/isa = "emulated"/; s/^layers = .*/layers = 2/; s/^width = .*/width = 32/; s/^heads = .*/heads = 2/
  s/^context = .*/context = 32/; s/^sequences = .*/sequences = 2/' "$job"
export STARLING_NCCL={nccl}
exec {starling} "$@"
"""
TRANSPORT_TIMES = """
for name in making round revoke abort; do
  echo "{\\"name\\":\\"$name\\",\\"n\\":15,\\"first_ms\\":900.5,\\"second_ms\\":310.25,\\"median_ms\\":305.0,\\"worst_ms\\":901.0}"
done
echo '{"name":"left","cycles":15,"threads_before":4,"threads":4}'
"""
STARLING_THERE = f"""
case "$1" in
  version*) echo "starling 0.1.0"; echo "gpu        built for 90-real with CUDA 13.0; 1 GPU: NVIDIA H100 (9.0)" ;;
  check*) echo "model gpt2, isa cuda 9.0, 132 SMs"; echo "loss      off  5.3e-08  bound  5.0e-07  ok    micro_loss" ;;
  run*) {RUN.format(starling=STARLING, nccl=FAKE_NCCL)} ;;
esac
"""
BENCH_THERE = """
case "$2" in
  --same) for n in 16 32; do echo "{\\"name\\":\\"same\\",\\"sequences\\":$n,\\"n\\":20,\\"hashes\\":1,\\"hash\\":\\"cafe$n\\"}"; done ;;
  --speed) echo '{"name":"gpt2-124m","sequences":16,"tokens_per_s":420000}' ;;
  --tune) echo "# a table" >"$3"; echo "1 2 3 own" >>"$3" ;;
esac
"""


class Machine:
    """A bundle and a PATH of stand-ins."""

    def __init__(self, place, **programs):
        place.count += 1
        self.root = place.path(f"machine-{place.count}")
        self.bundle, self.path, self.out = (os.path.join(self.root, name) for name in ("bundle", "path", "out"))
        for folder in ("tools/bench", "tests/fixtures", "docs"):
            os.makedirs(os.path.join(self.bundle, folder))
        for name in ("gpu_check.sh", "gpu_torch.py", "gpu_script.py", "verify_ledger.py", "bench/kill_times.py", "bench/compare_pytorch.py",
                     "bench/gpu_kernels.py", "bench/gpu_roofline.py"):
            shutil.copy(os.path.join(SOURCE, "tools", name), os.path.join(self.bundle, "tools", name))
        shutil.copy(place.path("text.txt"), os.path.join(self.bundle, "docs", "text.md"))
        open(os.path.join(self.bundle, "tests", "fixtures", "gpt-micro.safetensors"), "w").close()
        for name, text in {"nvidia_smi": NVIDIA_SMI, "compute_sanitizer": SANITIZER, "ncu": NCU, "python": PYTHON,
                           "starling": STARLING_THERE, "starling_bench": BENCH_THERE, "gpu_tests": GPU_TESTS,
                           "transport_times": TRANSPORT_TIMES, **programs}.items():
            if text is not None:
                self.write(name, text)

    def write(self, name, text):
        folder = {"starling": self.bundle + "/bin", "starling_bench": self.bundle + "/bin", "gpu_tests": self.bundle + "/bin/tests",
                  "transport_times": self.bundle + "/bin/tests"}.get(name, self.path)
        os.makedirs(folder, exist_ok=True)
        file = os.path.join(folder, name if folder.endswith("/tests") else name.replace("_", "-"))
        with open(file, "w") as stream:
            stream.write("#!/usr/bin/env bash\nset -u\n" + text)
        os.chmod(file, 0o755)

    def start(self, *arguments):
        self.said = os.path.join(self.root, "said")
        environment = {**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}",
                       "PYTHON": os.path.join(self.path, "python")}
        with open(self.said, "w") as said:
            return subprocess.Popen(["bash", os.path.join(self.bundle, "tools", "gpu_check.sh"), "--out", self.out,
                                     *map(str, arguments)], stdout=said, stderr=subprocess.STDOUT, env=environment,
                                    start_new_session=True)

    def check(self, code, *arguments):
        """Runs it, expects this exit code, and gives the results by stage."""
        got = self.start(*arguments).wait(180)
        text = self.text()
        require(got == code, f"exit code {got}, expected {code}:\n{text}")
        require(not processes_naming(self.root), f"processes left behind:\n{text}")
        results = {}
        with open(os.path.join(self.out, "results.jsonl")) as file:
            for line in file:
                result = json.loads(line)
                require(result["stage"] not in results, f"two lines of {result['stage']}")
                results[result["stage"]] = result
        for stage, result in results.items():
            row = [line for line in text.split("\n") if line.startswith(f"{stage:10} {result['status']} ")]
            require(len(row) == 1 and row[0].endswith(result["text"]), f"no row of {stage} in the table:\n{text}")
        return results

    def text(self):
        with open(self.said) as file:
            return file.read()

    def log(self, stage):
        with open(os.path.join(self.out, stage + ".log")) as file:
            return file.read()


def failed(results, stage, *words):
    result = results[stage]
    require(result["status"] == "failed", f"{stage} is {result['status']}: {result['text']}")
    for word in words:
        require(word in result["text"], f"no '{word}' in {result['text']}")


def ended(*seconds):
    """No stand-in sleeps for so long any more. A killed process needs a moment."""
    for number in seconds:
        wait_until(lambda: not processes_naming("sleep\0" + number + "\0"), f"the end of those that sleep {number} s")


# ---- Tests --------------------------------------------------------------------------------------------------


def all_stages_run_and_their_figures_arrive(place):
    machine = Machine(place)
    results = machine.check(0)
    require(list(results) == STAGES, f"stages {list(results)}")
    for stage, result in results.items():
        require(result["status"] == "ok", f"{stage}: {result}\n{machine.log(stage)}")
        require((result["card"], result["driver"]) == ("NVIDIA H100 80GB HBM3", "580.159.04"), f"card of {result}")
        require(result["rehearsal"] is False and result["seconds"] >= 0, f"{result}")
    wanted = {"facts": {"card": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "copy_gb_per_s": 3000.5, "nccl": "2.28.9"},
              "grid": {"cases": 12},
              "sanitizer": {"memcheck_errors": 0, "racecheck_hazards": 0, "racecheck_cases": 9},
              "model": {"checks": 3, "device_fp16": "cuda 9.0, 132 SMs"}, "same": {"hash_16": "cafe16", "hash_32": "cafe32", "lines": 2}, "speed": {"tokens_per_s": 420000},
              "kernels": {"micro_batch_ms": 3.0}, "tune": {"plans": 1, "tokens_per_s": 420000},
              "torch": {"tokens_per_s": 400000, "cudnn_tokens_per_s": 390000, "deterministic_tokens_per_s": 350000},
              "script": {"digest": "cafe", "tokens_per_s": 140000, "plain_tokens_per_s": 150000},
              "train": {"steps": 300}, "kill": {"kills": 2},
              "nccl": {"making_first_ms": 900.5, "making_ms": 305.0, "abort_ms": 305.0, "cycles": 15},
              "transport": {"kills": 2, "path": "nccl 2.28.9, NVLS off, RAS off, PXN off, cuMem by default, "
                                             "cuMem host by default"}}
    for stage, figures in wanted.items():
        there = results[stage]["figures"]
        require(figures.items() <= there.items(), f"figures of {stage}: {there}")
    require([line["sequences"] for line in results["same"]["lines"]] == [16, 32], f"{results['same']}")
    for text in ("flash: 400000 tokens/s, of which Starling has 1.05", "cudnn: 390000", "Starling has 1.20"):
        require(text in results["torch"]["text"], results["torch"]["text"])
    train, kill = results["train"]["figures"], results["kill"]["figures"]
    require(train["digest"] == kill["digest"], f"digests {train} {kill}")
    require(0 < kill["guard_ms"] <= kill["commit_ms"] + 50 and train["loss_last_w1"] < train["loss_first_w1"], f"{kill}")
    transport = results["transport"]["figures"]
    require(transport["device_steps"] > 50 and transport["device_again"] > 0 and transport["digest"] != kill["digest"], f"{transport}")
    require("14 ok, 0 failed, 0 skipped" in machine.text(), machine.text())


def stages_are_chosen_and_run_in_their_order(place):
    machine = Machine(place)
    require(list(machine.check(0, "torch", "grid")) == ["grid", "torch"], "not the chosen ones in their order")
    require("has" not in machine.check(0, "torch")["torch"]["text"], "compared with a speed of another time")
    listed = subprocess.run(["bash", os.path.join(SOURCE, "tools", "gpu_check.sh"), "--list"], capture_output=True, text=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    require([row[0] for row in rows] == STAGES, listed.stdout)
    # With five seconds for each to be ended in, all of them hanging.
    require(sum(int(row[1]) + 5 for row in rows) <= 30 * 60, "more than half an hour")


def what_is_there_is_packed_after_each_stage(place):
    machine = Machine(place)
    pack = os.path.join(machine.root, "all.tar.gz")
    machine.check(0, "--pack", pack, "facts", "grid")
    with tarfile.open(pack) as archive:
        names = {os.path.basename(name) for name in archive.getnames()}
        results = archive.extractfile(next(n for n in archive.getnames() if n.endswith("results.jsonl"))).read().decode()
    require({"results.jsonl", "facts.log", "grid.log"} <= names, f"{sorted(names)}")
    require([json.loads(line)["stage"] for line in results.splitlines()] == ["facts", "grid"], results)


def what_the_command_does_not_know_is_a_failure_with_its_text(place):
    machine = Machine(place, starling=f'exec {STARLING} "$@"', starling_bench=f'exec {STARLING}-bench "$@"', gpu_tests=None)
    results = machine.check(1, "grid", "model", "same", "speed", "torch")
    failed(results, "grid", "gpu_tests is not there")
    failed(results, "model", "gpt-micro.safetensors bf16: starling: ")
    failed(results, "same", "starling-bench device --same: exit code ", "starling: ")
    failed(results, "speed", "starling-bench device --speed: exit code ", "starling: ")
    require(results["torch"]["status"] == "ok", "a failure kept the next stage from running")


def one_that_hangs_is_ended_at_its_limit(place):
    machine = Machine(place, gpu_tests="trap '' TERM\n(trap '' TERM; sleep 1000; sleep 1000) &\necho so far\nsleep 1000; sleep 1000",
                      starling_bench="setsid sleep 1001; sleep 1001")
    begun = time.monotonic()
    results = machine.check(1, "--limit", 2, "grid", "same", "torch")
    require(time.monotonic() - begun < 60, "it took long")
    failed(results, "grid", "over its limit of 2 s")
    failed(results, "same", "over its limit of 2 s")
    ended("1000", "1001")
    require("so far" in machine.log("grid"), "the log has not what was printed before")
    require(results["torch"]["status"] == "ok", "a hang kept the next stage from running")


def nothing_that_did_not_run_is_ok(place):
    # All end with 0 and say nothing.
    silent = dict.fromkeys(("compute_sanitizer", "starling", "starling_bench", "gpu_tests", "transport_times", "python"), "exit 0")
    silent["nvidia_smi"] = 'case "$*" in *memory.total*) ;; *) echo "A card, 1.0" ;; esac'
    results = Machine(place, **silent).check(1)
    require(list(results) == STAGES, f"stages {list(results)}")
    for stage in STAGES:
        failed(results, stage)
    # And no test case is none.
    none = f'echo "{CASES.format(0)}"\necho "ERROR SUMMARY: 0 errors"'
    results = Machine(place, gpu_tests=none, compute_sanitizer=none).check(1, "grid", "sanitizer")
    failed(results, "grid", "no case")
    failed(results, "sanitizer", "0 cases")


def what_is_wrong_is_seen(place):
    seed = STARLING_THERE.replace("exec " + STARLING, '[ "$4" = 1 ] || set -- "$@" --seed 2\nexec ' + STARLING)
    wrong = seed.replace("ok    micro_loss", "OFF   micro_loss")
    wrong = wrong.replace('"model gpt2, isa cuda', '"model gpt2, isa avx2')
    found = SANITIZER.replace("0 hazards", "3 hazards")
    results = Machine(place, starling=wrong, starling_bench=BENCH_THERE.replace('\\"hashes\\":1', '\\"hashes\\":2'), compute_sanitizer=found,
                      gpu_tests='echo "[doctest] test cases: 3 | 2 passed | 1 failed | 0 skipped"; exit 1').check(
                          1, "grid", "sanitizer", "model", "same", "train")
    failed(results, "grid", "exit code 1", "2 cases passed")
    failed(results, "sanitizer", "racecheck: 3 findings")
    failed(results, "model", "did not say that it computed with cuda")
    failed(results, "same", "2 different gradients of 16 sequences")
    failed(results, "train", "of one worker", "of three")


def what_runs_leave_behind_is_a_failure_and_ended(place):
    leaves = STARLING_THERE.replace(f'exec {STARLING} "$@"', f'setsid sleep 1002 & {STARLING} "$@"')
    failed(Machine(place, starling=leaves).check(1, "train"), "train", "2 processes were left behind")
    ended("1002")


def what_is_not_there_is_skipped(place):
    # A PATH that has no compute-sanitizer and no ncu, whatever this machine has.
    machine = Machine(place, compute_sanitizer=None, ncu=None, python='echo "no PyTorch in here" >&2; exit 77')
    hidden = {name for name in os.environ["PATH"].split(":")
              if any(os.path.exists(os.path.join(name, tool)) for tool in ("compute-sanitizer", "ncu"))}
    old = os.environ["PATH"]
    os.environ["PATH"] = ":".join(p for p in old.split(":") if p not in hidden)
    try:
        results = machine.check(0, "facts", "kernels", "grid", "sanitizer", "torch")
        require([results[s]["status"] for s in results] == ["ok", "skipped", "ok", "skipped", "skipped"], f"{results}")
        require("no ncu" in results["kernels"]["text"], f"{results['kernels']}")
        require("no compute-sanitizer" in results["sanitizer"]["text"] and "no PyTorch" in results["torch"]["text"], f"{results}")
        require("rates not measured" in results["facts"]["text"], f"{results['facts']}")
        machine.check(77, "torch")  # nothing was done at all
    finally:
        os.environ["PATH"] = old


def without_a_gpu_it_says_so_and_ends_with_77(place):
    for nvidia_smi in (None, 'echo "NVIDIA-SMI has failed"; exit 9', 'echo "No devices were found"'):
        machine = Machine(place, nvidia_smi=nvidia_smi)
        if nvidia_smi is None and shutil.which("nvidia-smi"):
            continue
        got = machine.start().wait(60)
        require(got == 77 and machine.text().count("\n") == 1 and "no GPU" in machine.text(), f"{got}: {machine.text()}")
    for arguments in (["grit"], ["--limit", "soon"], ["--out"], ["--build", place.path("nowhere")]):
        got = machine.start(*arguments).wait(60)
        require(got == 2 and "--help says more" in machine.text(), f"{arguments}: {got}: {machine.text()}")


def a_signal_ends_it_and_all_it_started(place):
    machine = Machine(place, gpu_tests="setsid sleep 1003 & sleep 1003")
    process = machine.start("facts", "grid")
    wait_until(lambda: processes_naming(machine.bundle + "/bin/tests/gpu_tests"), "the stage begins")
    process.send_signal(signal.SIGTERM)
    require(process.wait(60) == 130 and "interrupted in grid" in machine.text(), machine.text())
    ended("1003")
    with open(os.path.join(machine.out, "results.jsonl")) as file:
        require([json.loads(line)["stage"] for line in file] == ["facts"], "facts was lost")


def a_rehearsal_trains_and_kills_on_the_emulated_device(place):
    machine = Machine(place, starling=f'exec {STARLING} "$@"', nvidia_smi=None, python='exec python3 "$@"')
    results = machine.check(0, "--rehearse")
    for stage, result in results.items():
        require(result["status"] == ("ok" if stage in ("train", "kill") else "skipped"), f"{stage}: {result}")
        require(result["rehearsal"] is True and "imitated" in result["card"], f"{result}")
    for stage in ("nccl", "transport"):
        require("the stand-in for NCCL is not there" in results[stage]["text"], f"{results[stage]}")


def a_rehearsal_in_a_build_tree_goes_over_the_stand_in_for_nccl(place):
    machine = Machine(place, nvidia_smi=None, python='exec python3 "$@"')
    results = machine.check(0, "--rehearse", "--build", BUILD, "--limit", 170, "nccl", "transport")
    for stage, result in results.items():
        require(result["status"] == "ok" and result["rehearsal"] is True, f"{stage}: {result}\n{machine.log(stage)}")
    require(results["nccl"]["figures"]["cycles"] == 15, f"{results['nccl']}")
    require(results["transport"]["figures"]["device_again"] > 0, f"{results['transport']}")
    # A library that makes no communicator is a failure, and says why.
    with environment(FAKE_NCCL="refuse-init@*"):
        results = machine.check(1, "--rehearse", "--build", BUILD, "--limit", 170, "transport")
    failed(results, "transport", "no step went over NCCL: ")


def the_stage_model_reads_what_the_command_says(place):
    """With the imitated GPU's plugin, where the build has it."""
    if not os.path.exists(PLUGIN):
        print(f"        not shown: there is no {PLUGIN}")
        return
    machine = Machine(place, starling=f'STARLING_PLUGIN={PLUGIN} STARLING_CUBLASLT=none exec {STARLING} "$@"')
    shutil.copytree(FIXTURES, os.path.join(machine.bundle, "tests", "fixtures"), dirs_exist_ok=True)
    result = machine.check(0, "--limit", 170, "model")["model"]
    require(result["figures"]["checks"] > 20, f"{result}")
    for precision in ("fp32", "bf16", "fp16"):
        require(result["figures"]["device_" + precision].startswith("cuda "), f"{result}")


main(all_stages_run_and_their_figures_arrive, stages_are_chosen_and_run_in_their_order,
     what_is_there_is_packed_after_each_stage,
     what_the_command_does_not_know_is_a_failure_with_its_text, one_that_hangs_is_ended_at_its_limit,
     nothing_that_did_not_run_is_ok, what_is_wrong_is_seen, what_runs_leave_behind_is_a_failure_and_ended,
     what_is_not_there_is_skipped, without_a_gpu_it_says_so_and_ends_with_77, a_signal_ends_it_and_all_it_started,
     a_rehearsal_trains_and_kills_on_the_emulated_device, a_rehearsal_in_a_build_tree_goes_over_the_stand_in_for_nccl,
     the_stage_model_reads_what_the_command_says)
