"""Whole jobs from a script: train(), join(), Job, and the optimizers that a job can have."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from . import best as best_of, child, logs
from .away import out_of_reach
from .callbacks import Callbacks, Watch, drop_checkpoints
from .calls import Call, Failed, Trained
from .command import command, ended, program
from .feed import Feed
from .model_file import load, own_names, save
from .optimizers import SGD, Adam, AdamW, Optimizer, Schedule
from .options import Options, name_of
from .records import CheckpointRecord, EpochRecord, EvaluationRecord, StepEvent, StepRecord, evaluation as evaluation_of, number
from .script import COMMAND, FOLDER, Refused, of_main, started, texts
from .validation import Validation, left_out

Build = Callable[[], "tuple[Any, Any]"]
Loss = Callable[[Any, Any], Any]
Log = Union[None, str, Callable[[int, Mapping[str, float]], Any], Sequence[Any]]
Given = Union[Optimizer, Callable[[Any], Any], Any]  # an optimizer, also of torch


def _again() -> str:
    """A command line for people that runs this script again and goes on."""
    return shlex.join(["env", "STARLING_RESUME=1", *COMMAND])


def _folder(name: str) -> str:
    """A new one below runs/, as the command has it."""
    first = os.path.join("runs", f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    numbered = (f"{first}-{i}" for i in itertools.count(2))
    return next(folder for folder in itertools.chain([first], numbered) if not os.path.exists(folder))


def _made(feed: Feed, init: "Optional[Mapping[str, Any]]", seed: int) -> "tuple[Any, Any]":
    from . import module

    module.seed_everything_to_begin_with()
    module.seed_everything(seed)
    net, data = feed.made()
    module.check(net, data)
    if init is not None:
        try:
            net.load_state_dict(own_names(net, init))
        except Exception as why:
            raise Refused(f"init does not fit the net: {' '.join(str(why).split())[:400]}") from None
    return net, data


def _run(call: Call, options: Options, feed: Feed, init: "Optional[Mapping[str, Any]]", callbacks: Callbacks,
         evaluate: "Optional[Callable[[Any], Any]]" = None, **calls: "Optional[Callable[..., Any]]") -> Trained:
    try:
        call.trained = _trained(call, options, feed, init, callbacks, evaluate, calls)
    except BaseException as failed:
        call.failed = failed.code if isinstance(failed, Failed) and isinstance(failed.code, int) else 2
        raise
    return call.trained


def _check_launched_once() -> None:
    """torchrun and its like run a script in many processes at once. Raises Refused."""
    world = os.environ.get("WORLD_SIZE", "")
    if world.isdigit() and int(world) > 1 and os.environ.get("RANK"):
        raise Refused(f"the script was launched as {world} processes (WORLD_SIZE in the environment), of which each would start a"
                      f" job of its own: start it once, with workers={world}")


def _trained(call: Call, options: Options, feed: Feed, init: "Optional[Mapping[str, Any]]", callbacks: Callbacks,
             evaluate: "Optional[Callable[[Any], Any]]", calls: "Mapping[str, Any]") -> Trained:
    """In the process that the user has started: the command does the work."""
    from . import module, proof

    wanted = os.environ.get("STARLING_WRITE_JOB")
    where = ""
    try:
        script = of_main()
        where = f"; {script.path}"
        _check_launched_once()
        options.check(init, build=feed.build, collate=feed.collate, evaluate=evaluate, **calls, **callbacks.functions())
        callbacks.check(options.checkpoint, options.evaluates_every(), options.checkpoint_every)
        if options.checkpoint and "://" not in options.checkpoint:
            options.checkpoint = os.path.abspath(options.checkpoint)  # a callback may go to another folder
        if wanted and (remark := callbacks.check_for_command()):
            print(f"starling: {remark}", file=sys.stderr)
        net, data = _made(feed, init, options.seed)
        options.batch_size = feed.taken.batch_size
        options.sampler = feed.taken.sampler
        counted = options.count(options.samples_of(data))
        options.settle(net)
        held_out = None
        if options.validation is not None:
            module.seed_everything(options.seed)
            options.held_out = len(options.validation.opened(feed.taken))
            options.validation.section(options.held_out, options.batch_size)  # raises Refused
            held_out = left_out(options.held_out, options.batch_size)
        start = started(proof.of_state(init), module.outline(net), call.trainer_of(net))
        script = replace(script, text=texts(script), call=call.number, at=call.at,
                         earlier=Call.records(call.number - 1), started=start.text())
    except Refused as why:
        raise Failed(_said(2, f"{why}{where}")) from None
    doubts: "list[str]" = [] if options.shards is None else list(data.doubts())
    for remark in (*feed.taken.remarks, *doubts, *options.remarks):
        _said(0, remark)
    if wanted:  # a command wants the job, and runs it in its own way
        Path(wanted).write_text(options.job(net, data, script), encoding="utf-8")
        raise SystemExit(0)
    for line in (counted, held_out):
        if line:
            print(line, flush=True)
    out = options.out or _folder(name_of(script))
    place = os.path.abspath(out)
    # A call that was done before is found to be so, whether it has checkpoints or not.
    done = options.out is not None and os.path.exists(os.path.join(out, "model.safetensors"))
    resume = options.resume or os.environ.get("STARLING_RESUME") == "1" and bool(options.checkpoint or done)
    moved = os.getcwd() != FOLDER  # the command begins where this process began
    again = _again()

    def command_of(job: str, out: str, resume: bool, end: "Optional[int]", watch: "Optional[Watch]") -> "tuple[int, bool]":
        with tempfile.TemporaryFile() as file:  # without a name: nothing is left however this process ends
            file.write(job.encode())
            file.flush()
            return ended([program(), "run", f"/proc/self/fd/{file.fileno()}", "--workers", str(options.workers), "--out", out,
                          "--threads", str(options.threads), *(["--resume"] if resume else []), *options.words(end)],
                         again, file.fileno(), watch=watch)

    def run(end: "Optional[int]", watch: "Optional[Watch]") -> "tuple[int, bool]":
        job = options.job(net, data, script, end, tended=callbacks.best is not None)
        return command_of(job, place if moved else out, resume or end is not None, end, watch)

    def best_model(record: EvaluationRecord, made: str) -> None:
        folder = str(options.checkpoint)

        def once_more(out: str, checkpoints: str, resume: bool) -> "tuple[int, Optional[EvaluationRecord]]":
            job = replace(options, checkpoint=checkpoints).job(net, data, script, record.step)
            code = command_of(job, out, resume, record.step, None)[0]
            return code, evaluation_of(_end_of(out)["evaluation"], options.evaluated()) if code == 0 else None

        if not best_of.exported(program(), best_of.path_of(folder, record.step), made):
            best_of.gone_back(folder, record, made, once_more)
        save(made, net)

    chosen = None
    if callbacks.any():
        try:
            writers = logs.writers(callbacks.log, place, name_of(script), options.plain(), options.scalars_evaluated())
            with out_of_reach(net):
                code, chosen = _watching(callbacks, options, place, resume, writers, run)
        except Refused as why:
            raise Failed(_said(2, f"{why}{where}")) from None
    else:
        code, _ = run(None, None)
    if code != 0:
        raise Failed(code)
    end = _end_of(place)
    best = None
    try:
        record = None if chosen is None else chosen.record
        if record is not None:
            best = best_of.written(record, place, int(end["version"]), partial(best_model, record))
            best = replace(best, out=out + best.out.removeprefix(place))
        elif chosen is not None:
            best_of.forget(place)
        save(place, net)
    except Refused as why:
        raise Failed(_said(6, f"the job is done, digest {end['digest']}: {why}")) from None
    except Exception as why:
        raise Failed(_said(6, f"the job is done, digest {end['digest']}, and the whole model is not here:"
                              f" {' '.join(str(why).split())[:400]}; {out} has the trained parameters alone")) from None
    evaluation = None
    if options.validation is not None and "evaluation" in end:
        evaluation = evaluation_of(end["evaluation"], options.evaluated()).values()
    elif evaluate is not None:
        net.eval()
        evaluation = evaluate(net)
    call.has_trained(net)
    measured = dict(zip(options.metrics, map(number, end.get("metrics", []))))
    return Trained(out, end["digest"], number(end["loss"]), int(end["version"]), measured, evaluation,
                   best, end["doubted_from"])


def _watching(callbacks: Callbacks, options: Options, out: str, resume: bool, writers: "list[logs.Writer]",
              run: "Callable[[Optional[int], Optional[Watch]], tuple[int, bool]]") -> "tuple[int, Optional[best_of.Chosen]]":
    """Runs the command and tells the functions of it; once more, from the checkpoint before, where workers were further
    than the step at which stop was true. Returns the exit code and the best evaluation."""
    with contextlib.closing(Watch(callbacks, out, options.metrics, resume, writers, options.evaluated(),
                                  options.evaluates_every(), str(options.checkpoint), options.keep,
                                  passes=options.shards is None)) as watch:
        while True:
            end = watch.end
            if end is not None:
                print(f"stop was true at step {end}: the job ends with that", flush=True)
                drop_checkpoints(str(options.checkpoint), end)
            watch.expect()
            code, heard = run(end, watch)
            if heard and code != 0:  # whoever goes on with the run is told the rest
                return code, None
            watch.finish(done=code == 0)
            if not watch.enough or code not in (0, 128 + signal.SIGTERM) or \
                    code == 0 and int(_end_of(out)["version"]) == watch.end:
                return code, watch.chosen


def _said(code: int, text: str) -> int:
    print(f"starling: {text}", file=sys.stderr)
    return code


def _end_of(out: str) -> "dict[str, Any]":
    end: "dict[str, Any]" = {}
    metrics: "list[float]" = []
    doubts: "list[int]" = []
    evaluated: "dict[str, Any]" = {}
    try:
        events = open(os.path.join(out, "events.jsonl"), encoding="utf-8")
    except OSError as why:
        raise Failed(_said(2, f"the command has ended and left no run, see command=: {why}")) from None
    with events:
        for line in events:
            event = json.loads(line)
            if event.get("ev") == "step":
                metrics = event.get("metrics", [])
            if event.get("ev") == "tainted":
                doubts.append(int(event["first"]))
            if event.get("ev") == "mismatch":
                doubts.append(int(event["version"]))
            if event.get("ev") == "evaluation":
                evaluated["evaluation"] = event
            if event.get("ev") == "done":
                end = event
    return {**end, **evaluated, "metrics": metrics, "doubted_from": min(doubts, default=None)}


def train(build: Build, loss: Loss, *, steps: Optional[int] = None, micro_batches: int = 8, batch_size: Optional[int] = None,
          optimizer: Given = AdamW(), workers: int = 2, out: Optional[str] = None,
          seed: int = 1, replicas: int = 2, collate: "Optional[Callable[[list[Any]], Any]]" = None,
          init: "Optional[Mapping[str, Any]]" = None, evaluate: "Optional[Callable[..., Any]]" = None,
          checkpoint: Optional[str] = None, checkpoint_every: int = 100, keep: int = 2, resume: bool = False,
          metrics: "Sequence[str]" = (), lease_ms: int = 1000, isa: str = "auto", threads: int = 1,
          recheck: int = 256, on_mismatch: str = "warn", command: "Sequence[str]" = (),
          on_step: "Optional[Callable[[StepEvent], Any]]" = None,
          on_epoch: "Optional[Callable[[EpochRecord], Any]]" = None,
          on_checkpoint: "Optional[Callable[[CheckpointRecord], Any]]" = None,
          stop: "Optional[Callable[[StepRecord], Any]]" = None, log: Log = None,
          epochs: Optional[float] = None, schedule: Any = None,
          groups: "Optional[Mapping[str, Mapping[str, float]]]" = None, clip: Optional[float] = None,
          validation: Any = None, evaluate_every: Optional[int] = None,
          evaluate_metrics: "Optional[Sequence[str]]" = None,
          on_evaluate: "Optional[Callable[[EvaluationRecord], Any]]" = None, data: Any = None,
          num_workers: Optional[int] = None, best: "Optional[Callable[[EvaluationRecord], Any]]" = None,
          shards: Optional[int] = None, sampler: Any = None,
          checkpoint_every_seconds: Optional[int] = None, local_steps: Optional[int] = None,
          outer: Optional[Optimizer] = None, grid_bits: Optional[int] = None) -> Trained:
    """Trains with so many workers on this machine; more may join and any may go (the `start` event in
    out/events.jsonl says how).

    build       () -> (nn.Module, Dataset or DataLoader), or with `data` the nn.Module alone; runs in every
                worker, with the same random numbers
    data        the data: a map-style Dataset, an IterableDataset with `shards`, a DataLoader of torch, or a function that
                gives one and is called after build(). Of a DataLoader a job takes dataset, batch_size, sampler, collate_fn, num_workers,
                prefetch_factor and worker_init_fn; what it cannot have is refused by name
    num_workers processes that read the micro-batches which come next beside the pass, for each one that computes, 0 to
                256; default: those of the DataLoader, else 0; changes no bits
    shards      of an IterableDataset, `micro_batches` (times `local_steps`) to 1000000: how many parts it has. Shard i is what its iter() gives
                while get_worker_info() has id=i and num_workers=shards; it belongs to micro-batch i mod `micro_batches` of
                each step, which reads its shards in turn, pass after pass. The dataset needs an `identity`, and should have
                `shard_sizes`, samples of each shard; another number is another training
    sampler     which samples a pass over the data has, and in which order: starling.Weighted(..), starling.Grouped(..), or a
                function (number of the pass, 0 is the first) -> numbers of samples, as many for each pass, the same each time that
                it is asked; default: the DataLoader's, else each sample once in an order that is drawn for each pass
    loss        (net, batch) -> the micro-batch's mean loss, a tensor with one element; or that and a dict of
                the numbers that `metrics` names
    steps       a step is the sum of exactly `micro_batches` micro-batches of `batch_size` samples (default: of the
                DataLoader, else 8), whatever the number of workers
    epochs      instead of steps: so many passes over the Dataset, which need not be whole; as many steps as hold them,
                rounded up, and a line says how many
    optimizer   starling.AdamW(..), Adam(..), SGD(..), or Elementwise(..) with an update of your own, with warm-up and
                cosine (their help says more); or AdamW, Adam, SGD, RMSprop, Adagrad, Adamax, NAdam or RAdam of
                torch.optim, as lambda net: torch.optim.AdamW(net.parameters(), lr=3e-4), with a constant rate and
                without clipping, which are schedule= and clip=. Its state is sharded over the workers; a step of torch's own is never made
    schedule    of the rate: "linear" or another name of starling.Schedule, or a Schedule; a scheduler of torch.optim, as
                lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, 1000, cycle_momentum=False), or a
                function of the step that returns its rate: these two are asked once for all steps
    groups      {"*.bias": dict(weight_decay=0.0), "head.*": dict(lr=1e-4)}: by names or patterns ('*', '?') of
                parameters, other rates (beside the optimizer's; all follow its schedule) and weight decays; of several
                that have a key for a parameter the last one counts
    local_steps for slow links: a micro-batch is so many passes of `batch_size` samples, each followed by a step of `optimizer`
                (with its schedule, groups and clip, which count these steps; its moments begin at zero) on parameters of
                the worker's own, and what they changed is the micro-batch's part of a step: workers exchange bytes once for
                `local_steps` passes, and the training is another one (docs/slow-links.md)
    outer       with local_steps: the optimizer of the job's steps, which takes what local steps changed for a gradient; default:
                SGD(0.7, momentum=0.9, nesterov=True, floor=1, weight_decay=0, clip=0)
    grid_bits   for slow links: gradients are added up and sent with so many bits an element, 4 to 15, rounded up or down at
                random; the training is another one (docs/slow-links.md)
    clip        bound of the whole gradient's norm, 0: none; instead of the optimizer's
    workers     processes that begin here, 1 to 64
    seed        a whole number from 0 to 2**63 - 1: of build(), of the order of the samples, and of what is drawn in
                each micro-batch; another one is another training
    replicas    of each piece of the state, beside its owner's, 0 to 16, as many as there are other workers at most: so
                many workers may be lost at once and no checkpoint is read; changes no bits
    lease_ms    milliseconds from 10 to 60000: a worker that is not heard for so long is left out, later where all are
                late; more where machines stall for seconds; changes no bits
    collate     list of samples -> batch; torch's default_collate
    init        a state_dict to begin with
    validation  held-out data, a map-style Dataset, a DataLoader without shuffle, or a function that gives one, which is called after build(): the net
                is evaluated on them after every `evaluate_every` steps (100) and after the last, in whole batches of
                `batch_size`, by the workers, in eval mode and without gradients. It changes no bit of the training, and
                has the same bits for any number of workers and through kills
    evaluate    with validation: (net, batch) -> loss of a held-out batch, or that and a dict of the numbers that
                `evaluate_metrics` names (at most 8; default: metrics); default: `loss`. The result's `evaluation` is a
                dict of those of the end. Without validation: (net) -> anything; called here at the end with the trained
                net in eval mode
    metrics     names of what the loss measures beside it, at most 8: their means over each step are in its
                `step` event, in this order, and those of the last step in the result
    on_step     (StepEvent): called for each step, with its `step` (1 is the first), `loss`, `norm`, `rate`, `metrics`,
                `epoch`, `workers`, `ms`; on_evaluate (EvaluationRecord): after each evaluation, with `step`, `loss`,
                `metrics`, which are in the step's record too; on_epoch (EpochRecord): at the end of each pass over the data, with the means
                of its steps; on_checkpoint (CheckpointRecord): with `step` and `path`. They are called in the process
                that was started, in order, one at a time and once each, also where a run goes on in the same `out`;
                workers do not wait for them, and train() returns when all was told. What one raises ends the run, as
                Ctrl-C does, and is raised by train()
    stop        (StepRecord) -> whether the job ends with this step; asked of every step once, in order. It must be a
                function of the records alone. The model is that of just this step. Workers are further when it is
                asked, and go back to the checkpoint before, so it needs `checkpoint`
    best        (EvaluationRecord) -> a number, the smaller the better, as lambda e: e.loss, or lambda e: -e.metrics["hits"]:
                the result's `best` has step, loss and metrics of the evaluation with the smallest one, and `out`, the
                folder of the model of just that step. It must be a function of the records alone. Its checkpoint stays
                beside the `keep` newest ones, so it needs `checkpoint` and an `evaluate_every` that is a multiple of
                `checkpoint_every`
    log         "tensorboard" (event files in out/tensorboard), "wandb" (a run of W&B with files in out/wandb; the
                script's own if it has begun one), "csv" (out/steps.csv), a function (step, {name: value}), or a list of
                these: every step's loss, norm, rate, epoch, workers, ms and metrics, each once, also where a run goes
                on in the same `out`
    out         folder of the run; default: a new one, runs/NAME-TIME
    checkpoint  folder on storage that all workers reach: the state every `checkpoint_every` steps, and
                when the newest is `checkpoint_every_seconds` old, from which resume=True (or STARLING_RESUME=1 in the environment) goes on with any number of workers
    keep        how many of the newest checkpoints stay, 1 to 1000; changes no bits
    isa         "avx2" keeps CPUs with and without AVX-512 in one job; "cuda" keeps a job's state on GPUs; "auto": of CPUs
                each its best, and all alike, and "cuda" where the net is on a GPU that workers can use
    threads     processes that compute for each worker, one thread each
    recheck     one micro-batch in so many is computed again by another worker, and the gradients are compared;
                each worker does so with one in each of its first 32 steps; 0: none
    on_mismatch where they differ, the script keeps state or a machine computes wrongly: "warn" goes on with a
                warning and a `mismatch` event, "stop" ends the run, exit code 1
    command     further options of `starling run`

    Raises Failed (a SystemExit) with the command's exit code; what went wrong was said in one line.
    """
    call, feed = Call(), Feed(build, data, collate, batch_size, num_workers, micro_batches, local_steps, shards, sampler)
    worker = child.channel()
    if worker is not None:
        if not call.is_the_jobs(worker.script):
            return call.result()
        server = child.Server(feed, dict(init) if init is not None else None, metrics,
                              _held_out(validation, evaluate_every, evaluate or loss, evaluate_metrics, metrics))
        for one in server.micro_batches():
            given = loss(server.net, one.batch())
            value, measured = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
            one.done(value, measured)
    options = Options(steps, micro_batches, batch_size, optimizer, workers, out, seed, replicas, checkpoint,
                       checkpoint_every, keep, resume, lease_ms, metrics, isa, threads, recheck, on_mismatch, command,
                       epochs, Validation(validation, evaluate_every, evaluate or loss, evaluate_metrics),
                      schedule=schedule, groups=groups, clip=clip, num_workers=num_workers, shards=shards,
                      checkpoint_every_seconds=checkpoint_every_seconds, local_steps=local_steps, outer=outer, grid_bits=grid_bits)
    return _run(call, options, feed, init, Callbacks(on_step, on_epoch, on_checkpoint, stop, log, on_evaluate, best), evaluate,
                loss=loss)


def _held_out(data: Any, every: Optional[int], evaluate: "Optional[Callable[[Any, Any], Any]]",
              names: "Optional[Sequence[str]]", metrics: "Sequence[str]") -> Optional[Validation]:
    """In a worker's process."""
    return None if data is None else Validation(data, every, evaluate, tuple(metrics if names is None else names))


class MicroBatch:
    """A micro-batch that this worker computes."""

    def __init__(self, one: "child.Pass") -> None:
        self._pass = one

    @property
    def number(self) -> int:
        """0 to micro_batches - 1 of its step; of local steps m * local_steps + i for local step i of micro-batch m."""
        return self._pass.number

    @property
    def samples(self) -> "tuple[int, ...]":
        """Numbers of its samples in the Dataset; of an IterableDataset their places in the stream of its lane, the number
        of the micro-batch."""
        return tuple(self._pass.samples)

    def batch(self) -> Any:
        """The samples, put together."""
        return self._pass.batch()

    def done(self, loss: Any, /, **metrics: Any) -> float:
        """Computes the gradient of the mean loss, a tensor with one element; returns the loss. metrics: those that
        the job names, each one number."""
        return self._pass.done(loss, metrics)


class Step:
    """A step of the job, as this worker sees it."""

    def __init__(self, number: int, first: "child.Pass", passes: "Iterator[child.Pass]") -> None:
        self.number = number
        self._next: "Optional[child.Pass]" = first
        self._passes = passes
        self._after: "Optional[child.Pass]" = None

    @property
    def mine(self) -> "Iterator[MicroBatch]":
        """The micro-batches of it that are this worker's, as the job hands them out; each wants its done().
        How many is for the job to say: another worker may be lost meanwhile."""
        while self._next is not None and self._next.step == self.number:
            yield MicroBatch(self._next)
            self._next = next(self._passes, None)
        self._after, self._next = self._next, None


class Job:
    """For those who keep their own loop; options as of train():

        job = starling.Job(build, steps=1000, workers=4, out="out")
        for step in job:
            for mb in step.mine:
                mb.done(loss(job.net, mb.batch()))
        print(job.trained.digest)

    The loop runs in every worker. In the process that a person has started it has no step: there it
    waits for the job's end, whose result is `trained` then."""

    def __init__(self, build: Build, *, steps: Optional[int] = None, micro_batches: int = 8, batch_size: Optional[int] = None,
                 optimizer: Given = AdamW(), workers: int = 2, out: Optional[str] = None,
                 seed: int = 1, replicas: int = 2, collate: "Optional[Callable[[list[Any]], Any]]" = None,
                 init: "Optional[Mapping[str, Any]]" = None, checkpoint: Optional[str] = None,
                 checkpoint_every: int = 100, keep: int = 2, resume: bool = False, metrics: "Sequence[str]" = (),
                 lease_ms: int = 1000, isa: str = "auto", threads: int = 1, recheck: int = 256,
                 on_mismatch: str = "warn", command: "Sequence[str]" = (),
                 on_step: "Optional[Callable[[StepEvent], Any]]" = None,
                 on_epoch: "Optional[Callable[[EpochRecord], Any]]" = None,
                 on_checkpoint: "Optional[Callable[[CheckpointRecord], Any]]" = None,
                 stop: "Optional[Callable[[StepRecord], Any]]" = None, log: Log = None,
                 epochs: Optional[float] = None, schedule: Any = None,
                 groups: "Optional[Mapping[str, Mapping[str, float]]]" = None, clip: Optional[float] = None,
                 validation: Any = None, evaluate_every: Optional[int] = None,
                 evaluate: "Optional[Callable[[Any, Any], Any]]" = None,
                 evaluate_metrics: "Optional[Sequence[str]]" = None,
                 on_evaluate: "Optional[Callable[[EvaluationRecord], Any]]" = None, data: Any = None,
                 num_workers: Optional[int] = None, best: "Optional[Callable[[EvaluationRecord], Any]]" = None,
                 shards: Optional[int] = None, sampler: Any = None,
                 checkpoint_every_seconds: Optional[int] = None, local_steps: Optional[int] = None,
                 outer: Optional[Optimizer] = None, grid_bits: Optional[int] = None) -> None:
        self._callbacks = Callbacks(on_step, on_epoch, on_checkpoint, stop, log, on_evaluate, best)
        self._feed = Feed(build, data, collate, batch_size, num_workers, micro_batches, local_steps, shards, sampler)
        self._init, self._call = init, Call()
        self._options = Options(steps, micro_batches, batch_size, optimizer, workers, out, seed, replicas,
                                 checkpoint, checkpoint_every, keep, resume, lease_ms, metrics, isa, threads, recheck,
                                 on_mismatch, command, epochs,
                                 Validation(validation, evaluate_every, evaluate, evaluate_metrics),
                                schedule=schedule, groups=groups, clip=clip, num_workers=num_workers, shards=shards,
                      checkpoint_every_seconds=checkpoint_every_seconds, local_steps=local_steps, outer=outer, grid_bits=grid_bits)
        self._server: "Optional[child.Server]" = None
        worker = child.channel()
        if worker is not None and self._call.is_the_jobs(worker.script):
            self._server = child.Server(self._feed, dict(init) if init is not None else None, metrics,
                                        _held_out(validation, evaluate_every, evaluate, evaluate_metrics, metrics))

    @property
    def net(self) -> Any:
        """The module, whose parameters are the job's."""
        assert self._server is not None, "only workers have the net; starling.load() gives the trained one"
        return self._server.net

    @property
    def trained(self) -> Optional[Trained]:
        """What the job came to; None before its loop is over."""
        return self._call.trained

    def __iter__(self) -> "Iterator[Step]":
        if self._server is None:
            if child.channel() is None:
                _run(self._call, self._options, self._feed, self._init, self._callbacks)
            else:
                self._call.result()
            return
        passes = self._server.micro_batches()
        one: "Optional[child.Pass]" = next(passes, None)
        while one is not None:
            step = Step(one.step, one, passes)
            yield step
            if step._next is not None:
                raise RuntimeError(f"step {step.number} was left before its micro-batches: for mb in step.mine")
            one = step._after


def join(where: str, script: str, *, keys: Optional[str] = None, threads: int = 1,
         command: "Sequence[str]" = ()) -> int:
    """Makes this machine a worker of a job that runs elsewhere, with its own copy of the script, until the job
    ends or the worker is told to go (SIGTERM).

    where    the folder of a run of this machine, a join token (`starling keys`), a file that holds one, or, with `keys`,
             the coordinators' addresses
    keys     file or folder of keys, where `where` is no token
    threads  processes that compute, one thread each
    command  further options of `starling worker`

    Returns the worker's exit code: 0 when the job is done, 143 when the worker has left as it was told to."""
    arguments = [program(), "worker", "--join", where, "--script", os.path.abspath(script), "--threads",
                 str(threads), *(["--keys", keys] if keys else []), *command]
    return ended(arguments)[0]
