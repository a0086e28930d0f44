// These are the options of the commands that disturb and judge runs: chaos, replay, audit.

#include <initializer_list>

#include "tools/chaos/faults/table.h"
#include "tools/starling/options.h"

namespace starling::tools {
namespace {

const CLI::Validator kDigest(
    [](std::string& text) {
      const bool digest =
          text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
      return digest ? std::string() : "must be a digest, 32 digits of 0-9 and a-f, is " + text;
    },
    "DIGEST", "digest");

// Refuses options that `option` makes useless: better refused than ignored.
void refuse_beside(CLI::App* sub, const char* option, std::initializer_list<const char*> others) {
  for (const char* other : others) sub->get_option(option)->excludes(sub->get_option(other));
}

}  // namespace

void add_chaos(CLI::App& app, ChaosCommand& o) {
  auto* sub = subcommand(
      app, "chaos", "Disturbs a job while it runs, and says for each promise whether it held.",
      "starling chaos examples/gpt/tiny.toml --random --duration 60 --seed 1 --out chaos\n"
      "  starling chaos train.py --random --duration 60 --out chaos\n"
      "  starling chaos job.toml --command 'mine worker --join {join} --keys {keys}' --random \\\n"
      "    --duration 60 --out chaos\n"
      "  starling chaos --attach out --duration 60 --max-faults 5 --keep 3 --out chaos\n\n"
      "--attach: a run's folder, or the address of one of its coordinators that a worker here\n"
      "joins. Workers are found by the process ids in the run's events; those on other machines\n"
      "are left alone. It kills, stops and tells to leave, and starts nobody but who was left out\n"
      "while stopped. It can judge the ledger, that no step is taken back, that nobody computes\n"
      "outside its epochs, pauses, and an end for lack of state (P2, P3, P4, P5, P7), not whether\n"
      "the bits are those of an undisturbed run, what is left, or whether strangers get in (P1,\n"
      "P6, P8). Ctrl-C lets whoever is stopped go on; kill -9 does not.");
  sub->add_option("job", o.job,
                  "job file, or a script, whose arguments follow --; not with --attach");
  sub->add_option(
         "--attach", o.attach,
         "folder, or coordinator's address, of a run on this machine that is disturbed instead")
      ->type_name("DIR|ADDRESS");
  sub->add_option("--keys", o.keys, "with --attach: its key file (default: as its events say)");
  sub->add_option("--command", o.command,
                  "a worker of the job, instead of this program's own: one program with its "
                  "arguments, where {join} becomes the coordinators' addresses and {keys} the file "
                  "of its key");
  sub->add_option("-o,--out", o.out, "new folder for runs, plan and reports")->required();
  sub->add_option("--plan", o.plan, "do what this plan says (TOML; DIR/plan.toml of another run)");
  sub->add_flag("--random", o.random, "draw a plan from the seed");
  sub->add_option("--rate", o.rate, "faults a second")
      ->check(CLI::Range(0.001, 100.0))
      ->capture_default_str();
  sub->add_option(
      "--kinds", o.kinds,
      "of " + starling::chaos::known_kinds() +
          " (default: " + starling::chaos::kinds_that(&starling::chaos::FaultKind::usual) +
          "; --attach: " + starling::chaos::kinds_that(&starling::chaos::FaultKind::attached) +
          ")");
  sub->add_option("--max-faults", o.max_faults, "of a drawn plan")
      ->check(CLI::Range(1, 200'000))
      ->capture_default_str();
  sub->add_option("--keep", o.keep, "so many workers are always left; --attach: and never stopped")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_option("--seed", o.seed, "of the plan; the job has its own")
      ->capture_default_str()
      ->check(kWhole);
  sub->add_option(
      "--duration", o.duration,
      "of the faults: seconds, or like 10m; the job's steps are as many as take so long");
  sub->add_option("--steps", o.steps, "of the job, instead of the job file's")->check(kWhole);
  sub->add_option("--reference", o.reference,
                  "digest of an undisturbed run (default: there is one first)")
      ->check(kDigest);
  sub->add_option(
         "--links", o.links,
         "how partition, apart and slow-link are made: namespaces (each worker in a network "
         "namespace of its own; needs root), proxy; auto: namespaces where they can be had")
      ->check(CLI::IsMember({"auto", "namespaces", "proxy"}))
      ->capture_default_str();
  sub->add_option("-w,--workers", o.workers, "at the start")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_option("--workers-max", o.workers_max,
                  "joins beyond are held back (default: twice the workers)")
      ->check(CLI::Range(1, 64));
  sub->add_option("-t,--threads", o.threads, "compute threads of each worker")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  sub->add_option("--coordinators", o.coordinators, "1 cannot be killed")
      ->check(CLI::IsMember({1, 3, 5}))
      ->capture_default_str();
  sub->add_option("--lease-ms", o.lease_ms, "instead of the job file's")->check(kWhole);
  sub->add_option("--replicas", o.replicas, "instead of the job file's")->check(kWhole);
  sub->add_flag("--last-copies", o.last_copies,
                "kills may take the last copies of some state, and leave fewer than --keep");
  sub->add_option("--pause-ms-max", o.pause_ms_max,
                  "P7: what a kill may cost beyond the lost work, at the median")
      ->capture_default_str();
  add_log(sub, o);
  refuse_beside(sub, "--plan",
                {"--random", "--seed", "--rate", "--kinds", "--max-faults", "--duration", "--steps",
                 "--workers", "--threads", "--coordinators", "--lease-ms", "--replicas"});
  refuse_beside(sub, "--attach",
                {"job", "--command", "--plan", "--steps", "--reference", "--links", "--workers",
                 "--workers-max", "--threads", "--coordinators", "--lease-ms", "--replicas",
                 "--last-copies"});
  sub->get_option("--keys")->needs("--attach");
}

void add_replay(CLI::App& app, ReplayCommand& o) {
  auto* sub = subcommand(
      app, "replay", "Lets workers come and go as machines did in a spot trace; measures goodput.",
      "starling replay examples/synthetic/1m.toml --trace p3-trace.csv --speedup 600 \\\n"
      "    --micro-batches 1024 --from 0 --to 1h --min-goodput 0.97 --out replayed");
  sub->add_option("job", o.job, "job file, or a script, whose arguments follow --")->required();
  sub->add_option("--trace", o.trace,
                  "lines time_ms,add|remove,node or time_ms,count (docs/replay.md)")
      ->required();
  sub->add_option("-o,--out", o.out, "new folder for runs, plan and reports")->required();
  sub->add_option("--speedup", o.speedup, "how much faster than the trace")
      ->check(CLI::Range(0.01, 1e6))
      ->capture_default_str();
  sub->add_option("--from", o.from, "of the trace: seconds, or like 10m or 2h")
      ->capture_default_str();
  sub->add_option("--to", o.to, "of the trace (default: its end)");
  sub->add_option("--scale", o.scale, "keep one node in so many, in the order of their coming")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--seed", o.seed, "draws who goes where the trace has counts only")
      ->capture_default_str()
      ->check(kWhole);
  sub->add_flag("--unannounced", o.unannounced, "nodes go without notice");
  sub->add_option("--notice", o.notice,
                  "of a removal, in the trace's time: AWS gives 120 s, GCP and Azure 30 s")
      ->capture_default_str();
  sub->add_option("--min-goodput", o.goodput_min, "a part of 1; less is exit code 1")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->add_option("--micro-batches", o.micro_batches, "of a step, instead of the job file's")
      ->check(kWhole);
  sub->add_option("--compute-ms", o.compute_ms,
                  "of a synthetic model's micro-batch, instead of the job file's");
  sub->add_option("--rate", o.rate,
                  "micro-batches a second of one undisturbed worker (default: measured first, with "
                  "up to six numbers of workers of the stretch)")
      ->check(CLI::PositiveNumber);
  sub->add_option("--steps", o.steps, "of the job (default: a little more than can be done)")
      ->check(kWhole);
  sub->add_option("--reference", o.reference,
                  "digest of an undisturbed run of so many steps (default: there is one after)")
      ->check(kDigest);
  sub->add_option("-t,--threads", o.threads, "compute threads of each worker")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  sub->add_option("--coordinators", o.coordinators, "processes that decide epochs")
      ->check(CLI::IsMember({1, 3, 5}))
      ->capture_default_str();
  sub->add_option("--lease-ms", o.lease_ms, "instead of the job file's")->check(kWhole);
  sub->add_option("--replicas", o.replicas, "instead of the job file's")->check(kWhole);
  add_log(sub, o);
}

void add_audit(CLI::App& app, AuditCommand& o) {
  auto* sub = subcommand(
      app, "audit",
      "Proves or refutes from its events what one run shows of the promises: P1 one record "
      "of every\n"
      "step and one end, P2 every micro-batch and so every sample used exactly once, P3 no\n"
      "committed step taken back. With two runs: the first step at which they are not the\n"
      "same bits; one run alone shows nothing of that.",
      "starling audit out --sample 17\n  starling audit out-quiet out-killed --json "
      "difference.json\n  starling audit machine-1 machine-2 machine-3 --together");
  sub->add_option("runs", o.runs,
                  "folder of a run, or its events.jsonl; a second one is compared with it")
      ->required();
  sub->add_flag("--together", o.together,
                "the files are of one run: of its coordinators on their machines, or of a run\n"
                "and those that went on from it");
  sub->add_option("--sample", o.sample, "also show in which steps and by whom it was used")
      ->check(kWhole);
  sub->add_option("--json", o.json, "write what is found to this file, too");
  sub->footer(
      sub->get_footer() +
      "\n\nExit codes: 0 all promises held, or same; 1 not held, not shown by this file (the\n"
      "line says which), or not the same; 2 bad input, or runs of different jobs.\n"
      "Digests are as close as digest_every in the job file says (10 steps).");
}

}  // namespace starling::tools
