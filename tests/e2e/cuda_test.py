"""Jobs for GPUs in real processes: the plugin's own code, compiled over an imitation of CUDA's runtime
(tests/cuda), is opened by the command as the plugin of a machine with a GPU would be."""
import os
import signal
import subprocess

from harness import ISA, STARLING, Failed, edited, environment, kill_join_and_leave, main, require, same, with_checkpoints

PLUGIN = os.path.join(os.path.dirname(STARLING), "tests", "cuda", "libstarling_cuda_imitated_plugin.so")
os.environ["STARLING_PLUGIN"] = PLUGIN
os.environ["STARLING_CUBLASLT"] = "none"  # a real one cannot work on an imitated device
FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")
# The imitation takes a second for a step of half the width, and nine of fp32.
SMALL = dict(isa="cuda", steps=6, width=16, context=12, sequences=1, micro_batches=4, lease_ms=10000,
             precision="bf16")
LONGER = SMALL | dict(steps=14)
SINGLE = SMALL | dict(precision="fp32", steps=2, schedule_steps=6, micro_batches=3)


def any_number_of_workers_and_threads_gives_the_same_bits(place):
    for job in (SINGLE, SMALL, SMALL | dict(precision="fp16")):
        quiet = place.quiet(place.job(**job))
        require(job is SINGLE or quiet.losses()[-1][1] < quiet.losses()[0][1], "the loss does not fall")
        same(place.run(place.job(**job), "--workers", 3, "--threads", 2).end(), quiet)


def a_kill_a_join_a_leave_and_checkpoints_change_no_bit(place):
    quiet = place.quiet(place.job(**LONGER))
    folder = place.path("checkpoints")
    run = place.run(with_checkpoints(place.job(**LONGER), folder, every=5), "--workers", 3)
    kill_join_and_leave(run, 2, "--save", "none")
    same(run, quiet)
    require(run.events("checkpoint"), "no checkpoint was written")


def a_llama_is_trained_on_gpus_by_any_group(place):
    """Heads that share keys, a window, norms of queries and keys; a kill, a join and a leave."""
    def llama(**more):
        return edited(place, place.job(**LONGER | more),
                      ('kind = "gpt"', 'kind = "llama"\nkey_value_heads = 1\nwindow = 5\nquery_key_norm = true\n'
                       'feed_forward = 24'))
    quiet = place.quiet(llama())
    require(quiet.losses()[-1][1] < quiet.losses()[0][1], "the loss does not fall")
    run = place.run(llama(), "--workers", 3)
    kill_join_and_leave(run, 2, "--save", "none")
    same(run, quiet)
    # A processor's bits are others: it was the GPU's kernels that computed.
    processor = place.quiet(llama(isa=ISA))
    require(abs(processor.losses()[0][1] - quiet.losses()[0][1]) < 0.02, "another loss than a processor's")
    require(processor.digest() != quiet.digest(), "the digest of a processor")


def adapters_are_trained_on_gpus_by_any_group(place):
    base = place.quiet(place.job(**SMALL | dict(steps=40, isa=ISA, precision="fp32"))).out

    def adapting(**more):
        return edited(place, place.job(**SMALL | dict(steps=10) | more),
                      (r"(?s)layers = .*?vocabulary = 256\n",
                       f'from = "{base}"\n[lora]\nrank = 4\nalpha = 8\ntargets = ["c_attn"]\n'),
                      (r"peak_rate = 1e-3", "peak_rate = 3e-2"))
    quiet = place.quiet(adapting())
    require(os.path.exists(os.path.join(quiet.out, "adapter_model.safetensors")), os.listdir(quiet.out))
    run = place.run(adapting(), "--workers", 3)
    kill_join_and_leave(run, 2)
    same(run, quiet)
    processor = place.quiet(adapting(isa=ISA))
    for (_, here, _), (_, there, _) in zip(quiet.losses(), processor.losses(), strict=True):
        require(abs(here - there) < 0.02, f"losses {quiet.losses()} and a processor's {processor.losses()}")
    require(processor.digest() != quiet.digest(), "the digest of a processor")


def a_scale_that_is_too_large_is_halved_until_steps_count_in_any_group(place):
    job = LONGER | dict(precision="fp16", more="loss_scale = 16777216")
    quiet = place.quiet(place.job(**job))
    steps = quiet.events("step")
    skipped = [e["version"] for e in steps if e["skipped"]]
    require(1 < len(skipped) < 10 and skipped == list(range(len(skipped))), f"skipped steps: {skipped}")
    scales = [2 ** (24 - min(e["version"], len(skipped))) for e in steps]
    require([e["scale"] for e in steps] == scales, f"scales: {[e['scale'] for e in steps]}")
    run = place.run(place.job(**job), "--workers", 3)
    kill_join_and_leave(run, 1, "--save", "none")
    same(run, quiet)


def moments_in_the_hosts_memory_and_recomputing_change_no_bit(place):
    quiet = place.quiet(place.job(**SMALL))
    same(place.run(place.job(**SMALL | dict(offload="moments", recompute="true")), "--workers", 2).end(), quiet)


def a_gpu_that_fails_costs_a_life_and_no_bit(place):
    quiet = place.quiet(place.job(**LONGER))
    with environment(STARLING_IMITATION_FAILURE=f"900:{place.path('failed')}"):
        run = place.run(place.job(**LONGER), "--workers", 2)
        same(run, quiet)
    lost = run.workers("lost")
    require(len(lost) == 1 and "lost the GPU: a launch: an illegal memory access" in (lost[0]["reason"] or ""), lost)
    lives = [e for e in run.workers() if e["name"] == lost[0]["name"]]
    require(len(lives) == 2, f"no new life: {lives}")


def the_fixtures_hold(place):
    for fixture in ("gpt-micro", "mlp-micro"):
        for options in ([], ["--bf16"], ["--fp16"]):
            checked = subprocess.run([STARLING, "check", os.path.join(FIXTURES, fixture + ".safetensors"), "--isa",
                                      "cuda", *options], capture_output=True, text=True)
            require(checked.returncode == 0 and "imitated GPU" in checked.stdout, checked.stdout + checked.stderr)


def a_group_of_others_refuses_it(place):
    """A job names its arithmetic: a GPU and a CPU train no job together."""
    job = SMALL | dict(steps=100000, isa=ISA)
    run = place.run(place.job(**job), "--workers", 1)
    run.wait_for_step(1)
    start = run.events("start")[0]
    refused = subprocess.run([STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none",
                              "--job", place.job(**job | dict(isa="cuda"))], capture_output=True, text=True)
    require(refused.returncode == 2 and 'job.isa is "cuda" here' in refused.stderr, refused.stderr)
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


if not os.path.exists(PLUGIN):
    raise Failed(f"no {PLUGIN}")
main(any_number_of_workers_and_threads_gives_the_same_bits, a_kill_a_join_a_leave_and_checkpoints_change_no_bit,
     a_gpu_that_fails_costs_a_life_and_no_bit,
     a_group_of_others_refuses_it,
     long=(a_scale_that_is_too_large_is_halved_until_steps_count_in_any_group,
           a_llama_is_trained_on_gpus_by_any_group, adapters_are_trained_on_gpus_by_any_group,
           moments_in_the_hosts_memory_and_recomputing_change_no_bit,
           the_fixtures_hold))
