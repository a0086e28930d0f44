// The command line has every option of every subcommand in one place.
// CLI11 takes six seconds to compile, so it is included here only.
// This file is long because it is a list, and each option belongs beside those of its subcommand.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>

#include "actors/files.h"
#include "actors/scheduling.h"
#include "core/base/standard_streams.h"
#include "core/job/job.h"
#include "tools/chaos/faults/table.h"
#include "tools/processes/signals.h"
#include "tools/public/starling.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/misunderstood.h"
#include "tools/starling/resume.h"
#include "tools/starling/script_jobs.h"

namespace {

using namespace starling::tools;

// Refuses what CLI11 reads as another number: a negative or a fractional one.
const CLI::Validator kWhole(
    [](std::string& text) {
      const bool whole = !text.empty() && text.size() < 20 &&
                         text.find_first_not_of("0123456789") == std::string::npos;
      return whole ? std::string() : "must be a whole number, is " + text;
    },
    "NUMBER", "whole");

const CLI::Validator kDigest(
    [](std::string& text) {
      const bool digest =
          text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
      return digest ? std::string() : "must be a digest, 32 digits of 0-9 and a-f, is " + text;
    },
    "DIGEST", "digest");

// Adds a subcommand with "Example:" below its options, as each has it.
CLI::App* subcommand(CLI::App& app, const char* name, const char* what, const char* example) {
  CLI::App* sub = app.add_subcommand(name, what);
  sub->footer(std::string("\nExample:\n  ") + example);
  return sub;
}

template <class Command>
void add_log(CLI::App* sub, Command& command) {
  sub->add_option("--log", command.log, "log lines on stderr: debug, info, warn, error, off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
}

void add_transport(CLI::App* sub, starling::actors::TransportChoice& choice) {
  using enum starling::actors::TransportChoice;
  const auto choose = [&choice](const std::string& name) {
    for (const auto one : {kAuto, kTcp, kNccl})
      if (name == name_of(one)) choice = one;
  };
  CLI::Option* const option =
      sub->add_option_function<std::string>(
             "--transport", choose,
             "what carries a step's bytes: auto, NCCL from GPU to GPU as soon as all members are "
             "ready, else TCP between the hosts; tcp; nccl, as auto, but a worker without NCCL "
             "does not begin. Changes no bits")
          ->check(CLI::IsMember({"auto", "tcp", "nccl"}))
          ->default_str(name_of(choice));
  // Its name and values of before.
  const std::map<std::string, std::string> now{
      {"auto", "auto"}, {"host", "tcp"}, {"direct", "nccl"}};
  sub->add_option_function<std::string>("--path",
                                        [choose, now](const std::string& before) {
                                          std::fprintf(
                                              stderr, "starling: --path %s is now --transport %s\n",
                                              before.c_str(), now.at(before).c_str());
                                          choose(now.at(before));
                                        })
      ->check(CLI::Validator(
          [now](std::string& before) {
            return now.contains(before) ? std::string()
                                        : "--path takes auto, host or direct, is " + before;
          },
          ""))
      ->excludes(option)
      ->group("");
}

void add_notices(CLI::App* sub, CloudNotices& o) {
  sub->add_option(
         "--notices", o.cloud,
         "leave when this cloud says that it takes the machine away: none, aws, gcp, azure; "
         "auto: the one that the firmware names, or none")
      ->check(CLI::IsMember({"none", "auto", "aws", "gcp", "azure"}))
      ->capture_default_str();
  sub->add_option("--metadata", o.metadata, "where its metadata service is")->capture_default_str();
}

void add_run(CLI::App& app, RunOptions& o) {
  auto* sub = subcommand(app, "run", "Trains on this machine: coordinator and workers in one go.",
                         "starling run examples/gpt/tiny.toml --workers 4 --steps 60 --out out");
  sub->add_option("job", o.job,
                  "job file (TOML; examples/gpt/tiny.toml explains every key), or a script (.py), "
                  "whose arguments follow --")
      ->required();
  sub->add_option("-w,--workers", o.workers, "worker processes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_option("--start", o.start, "of the workers, how many are started here; the others join")
      ->check(CLI::Range(0, 64));
  sub->add_option("-t,--threads", o.threads, "compute threads of each worker; change no bits")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  sub->add_option("--coordinators", o.coordinators,
                  "1: inside this process; 3 or 5: processes of their own, restarted when they die")
      ->check(CLI::IsMember({1, 3, 5}))
      ->capture_default_str();
  sub->add_option(
         "--host", o.host,
         "address of this machine at which coordinators and workers listen, and others reach "
         "them")
      ->capture_default_str();
  sub->add_option(
         "--port", o.port,
         "first of the ports that are used, one for each coordinator and then one for each "
         "worker that is started here (default: any free ones)")
      ->check(CLI::Range(1, 65000));
  sub->add_option("-o,--out", o.out,
                  "folder for events.jsonl, loss.svg and the model; new or without a run (default: "
                  "runs/NAME-TIME). The keys are in FOLDER.keys while it runs");
  sub->add_option("--steps", o.steps, "instead of the job file's")->check(kWhole);
  sub->add_option("--seed", o.seed, "instead of the job file's")->check(kWhole);
  sub->add_option("--peak-rate", o.peak_rate,
                  "learning rate, instead of the job file's; with --resume: from there on");
  sub->add_option("--lease-ms", o.lease_ms, "instead of the job file's")->check(kWhole);
  sub->add_option("--replicas", o.replicas, "instead of the job file's")->check(kWhole);
  add_notices(sub, o.notices);
  sub->add_flag(
      "--resume", o.resume,
      "go on from the newest complete checkpoint of the job's [checkpoint] folder, with any "
      "number of workers");
  sub->add_option("--respawn", o.respawn,
                  "a worker that dies is started again, unless so many in a row died in the same "
                  "way before they had worked at ten steps; 0: none is")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  sub->add_option("--checkpoints", o.checkpoints, "folder, instead of the job file's");
  add_transport(sub, o.transport);
  add_log(sub, o);
}

void add_worker(CLI::App& app, WorkerCommand& o) {
  auto* sub = subcommand(app, "worker",
                         "Joins a job as one worker; SIGTERM, or its cloud, announces its leave.",
                         "starling worker --join worker-3.token\n"
                         "  starling worker --join 10.0.0.1:7000 --keys keys");
  sub->add_option(
         "--join", o.join,
         "a file with a join token (starling keys --split), the token itself, or where the "
         "coordinators listen: host:port, for several with commas, in the order of the "
         "keys")
      ->envname("STARLING_JOIN")
      ->required();
  sub->add_option("--keys", o.keys,
                  "key file with a worker's key, or folder of split keys; not with a token");
  sub->add_option(
      "--job", o.job,
      "job file to compare with the one that the coordinators hand over; says where the "
      "data lies here");
  sub->add_option("--data", o.data, "where the data lies here (default: as the job file says)");
  sub->add_option("--script", o.script,
                  "where the script of a Python model lies here (default: as the job file says); "
                  "arguments that follow -- are compared with the job's");
  sub->add_option("--name", o.name, "use this worker key (default: the first free one)");
  auto* host = sub->add_option("--host", o.host,
                               "address of this machine, as other workers reach it (default: the "
                               "one from which it reaches the coordinators)");
  sub->add_option("--listen", o.listen,
                  "host:port where it listens for other workers (default: any port of --host)")
      ->excludes(host);
  sub->add_option(
      "--advertise", o.advertise,
      "host:port that other workers are told, where a port is forwarded (default: where "
      "it listens)");
  sub->add_option("--failure-domain", o.failure_domain,
                  "zone or host; copies of state are kept in different ones");
  sub->add_option("-t,--threads", o.threads, "compute threads; change no bits")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  sub->add_option(
      "--gpu", o.gpu,
      "of a job with isa = \"cuda\": which GPU of this machine, counted from 0 and around "
      "(default: the number at the end of its name)");
  sub->add_option("--slow", o.slow,
                  "wait until every micro-batch has taken this many times as long (default: 1, or "
                  "what a synthetic model's `slow` says of this worker)")
      ->check(CLI::Range(1.0, starling::kSlownessMax));
  sub->add_option("--notice", o.notice_s, "seconds to hand over after SIGTERM")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  add_transport(sub, o.transport);
  add_notices(sub, o.notices);
  sub->add_flag("--acknowledge", o.acknowledge,
                "when the state is handed over, tell the cloud that it need not wait (Azure); not "
                "with several workers on one machine");
  sub->add_option("--save", o.save,
                  "write the trained model to this file (safetensors; none: to no file; default: "
                  "model.safetensors in the working folder, with --quiet none)");
  sub->add_option("--times", o.times,
                  "after a good end, write where the time of each step went to this file (CSV)");
  sub->add_flag("--quiet", o.quiet, "print nothing but errors");
  sub->add_flag("--child", o.child)->group("");
  sub->add_option("--words", o.words)->group("");
  add_log(sub, o);
}

void add_coordinator(CLI::App& app, CoordinatorCommand& o) {
  auto* sub = subcommand(
      app, "coordinator", "Runs one member of the group that decides who works on a job.",
      "starling coordinator --job job.toml --keys keys --name coordinator-0 \\\n"
      "    --listen 10.0.0.1:7000 --peers 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000 \\\n"
      "    --workers 8 --state /var/lib/starling --out out --new\n\n"
      "--new only when the group starts for the first time. Later it is left out: a coordinator\n"
      "whose folder was lost then asks the others what it had promised, is repaired by them, and\n"
      "votes only after that.");
  sub->add_option("--job", o.job, "job file")->required();
  sub->add_option(
         "--keys", o.keys,
         "key file with this coordinator's key, or folder of split keys; read again when it "
         "changes")
      ->required();
  sub->add_option("--name", o.name,
                  "its name among the keys (default: that of the only coordinator whose secret is "
                  "there)");
  sub->add_option("--listen", o.listen, "host:port; port 0 takes any")->capture_default_str();
  sub->add_option(
      "--peers", o.peers,
      "addresses of all coordinators, in the order of the key file; not needed if there "
      "is one");
  sub->add_option("--workers", o.workers, "the first epoch waits for so many workers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  sub->add_option("--state", o.state, "folder of its Raft log; keep it between restarts")
      ->capture_default_str();
  sub->add_flag("--new", o.first,
                "the group begins: this coordinator has never run, and its folder is empty");
  sub->add_option("--out", o.out,
                  "folder for events.jsonl and loss.svg (default: the state folder)");
  sub->add_flag("--resume", o.resume,
                "a job that begins here goes on from the newest complete checkpoint");
  sub->add_flag("--child", o.child)->group("");
  add_log(sub, o);
}

// Refuses options that `option` makes useless: better refused than ignored.
void refuse_beside(CLI::App* sub, const char* option, std::initializer_list<const char*> others) {
  for (const char* other : others) sub->get_option(option)->excludes(sub->get_option(other));
}

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
  sub->add_option("job", o.job, "job file")->required();
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

void add_small(CLI::App& app, KeysCommand& keys, CheckCommand& check, BenchCommand& bench) {
  auto* sub = subcommand(
      app, "keys",
      "Makes the keys of a job: without one of them nobody gets in. Changes them while it runs.",
      "starling keys --split keys --coordinators 3 --at 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000\n"
      "  starling keys --keys keys --revoke worker-3\n\n"
      "A coordinator reads its file again when it changes: copy it to the coordinator's machine, "
      "or\n"
      "call --revoke there.");
  auto* make = sub->add_option_group("one of");
  make->add_option("-o,--out", keys.out, "new file with all keys, for a job on one machine");
  make->add_option(
      "--split", keys.split,
      "new folder with a file for each process, which has its own secret and no other");
  make->add_option("--token", keys.token, "print the join token of this worker; needs --at")
      ->type_name("NAME");
  make->add_option("--revoke", keys.revoke, "let this worker (or the client) in no longer")
      ->type_name("NAME");
  make->add_option("--add", keys.add, "let in another worker, worker-N, and write its file")
      ->type_name("NAME");
  make->require_option(1);
  sub->add_option("--coordinators", keys.coordinators, "pairs of coordinators")
      ->check(CLI::IsMember({1, 3, 5}))
      ->capture_default_str();
  sub->add_option("--workers", keys.workers, "pairs of workers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  sub->add_option("--at", keys.at,
                  "addresses of the coordinators, in order: also writes worker-N.token, one line "
                  "that is all a worker needs to join")
      ->type_name("ADDRESSES");
  auto* there = sub->add_option("--keys", keys.keys, "keys that are there: the folder, or a file");
  for (const char* change : {"--token", "--revoke", "--add"})
    make->get_option(change)->needs(there);
  make->get_option("--token")->needs(sub->get_option("--at"));
  make->get_option("--out")->excludes(sub->get_option("--at"));

  sub =
      subcommand(app, "check",
                 "Reads a job or key file, a trained model, a folder of checkpoints or a reference "
                 "file and says what is wrong. A reference file is computed again and compared.",
                 "starling check tests/fixtures/gpt-micro.safetensors");
  sub->add_option("file", check.file,
                  "job (.toml), keys, model or reference (.safetensors), or folder of checkpoints")
      ->required();
  sub->add_option("--isa", check.isa, "instruction set to compute with")
      ->check(CLI::IsMember({"auto", "reference", "avx2", "avx512", "cuda"}))
      ->capture_default_str();
  auto* bf16 = sub->add_flag_callback(
      "--bf16", [&check] { check.precision = starling::Precision::kBf16; },
      "a GPU computes the first gradient of a reference file in bf16");
  sub->add_flag_callback(
         "--fp16", [&check] { check.precision = starling::Precision::kFp16; },
         "the same in fp16, with a scaled loss")
      ->excludes(bf16);

  sub = subcommand(app, "bench", "Measures a part of Starling on this machine.",
                   "starling bench model --quick");
  sub->add_option("what", bench.what,
                  "model: forward and backward; grid: the integer sums; allreduce: the mesh; "
                  "recovery: how long a run pauses when a worker is lost; changes: what joins and "
                  "announced leaves cost the others; price: what a step of a quiet run costs; "
                  "bridge: what a micro-batch of a script's model costs beside the script; device: "
                  "whether a GPU repeats itself to the bit, and its tokens a second; transport: "
                  "the same job "
                  "over TCP and from device to device")
      ->required()
      ->check(CLI::IsMember({"model", "grid", "allreduce", "recovery", "changes", "price", "bridge",
                             "device", "transport"}));
  sub->add_flag("--json", bench.json, "one JSON object a line");
  sub->add_flag("--quick", bench.quick, "a few repetitions, to see that it runs");
  sub->add_option("--isa", bench.isa, "device, transport: which; auto is the processor")
      ->check(CLI::IsMember({"cuda", "auto", "emulated"}))
      ->capture_default_str();
  auto* same = sub->add_flag("--same", bench.same, "device: whether it repeats itself, alone");
  sub->add_flag("--speed", bench.speed, "device: tokens a second, alone")->excludes(same);
  auto* fp32 = sub->add_flag_callback(
      "--fp32", [&bench] { bench.precision = starling::Precision::kFp32; },
      "device: in fp32 instead of bf16");
  sub->add_flag_callback(
         "--fp16", [&bench] { bench.precision = starling::Precision::kFp16; },
         "device: in fp16 instead of bf16")
      ->excludes(fp32);
  sub->add_option(
      "--tune", bench.tune,
      "device: measure which algorithms of matrix products are fastest, into this file; "
      "with STARLING_CUDA_PLANS workers take them from there");
  sub->add_option("--job", bench.job, "of whole runs: the job")->capture_default_str();
  sub->add_option("--workers", bench.workers,
                  "of whole runs; changes: before and after, in between there are twice as many")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  sub->add_option("--losses", bench.losses, "recovery: workers lost, one after the other")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  sub->add_option("--seed", bench.seed, "recovery, transport: draws whom and when")
      ->capture_default_str()
      ->check(kWhole);
  auto* freeze = sub->add_flag("--freeze", bench.freeze, "recovery: SIGSTOP instead of SIGKILL");
  auto* cut = sub->add_flag("--cut", bench.cut,
                            "recovery: no packet passes to or from the worker (needs root)")
                  ->excludes(freeze);
  sub->add_flag("--leader", bench.leader,
                "recovery: with three coordinators, of which the leader is killed in the same "
                "instant")
      ->excludes(freeze)
      ->excludes(cut);
  sub->add_option("--rounds", bench.rounds, "changes: of joins and leaves; transport: and a kill")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--steps", bench.steps, "price, transport: of each of the two quiet runs")
      ->check(CLI::Range(10, 100000))
      ->capture_default_str();

  subcommand(app, "version", "Version, compiler, libraries, instruction set.", "starling version");
}

void add_audit(CLI::App& app, AuditCommand& o) {
  auto* sub =
      subcommand(app, "audit",
                 "Proves or refutes from its events that a run kept the promises: P1 one record of "
                 "every step\n"
                 "and one end, P2 every micro-batch and so every sample used exactly once, P3 no "
                 "committed step\n"
                 "taken back. With two runs: the first step at which they are not the same bits.",
                 "starling audit out --sample 17\n  starling audit out-quiet out-killed --json "
                 "difference.json\n  starling audit machine-1 machine-2 machine-3 --together");
  sub->add_option("runs", o.runs,
                  "folder of a run, or its events.jsonl; a second one is compared with it")
      ->required();
  sub->add_flag("--together", o.together,
                "the files are what the coordinators of one run wrote on their machines");
  sub->add_option("--sample", o.sample, "also show in which steps and by whom it was used")
      ->check(kWhole);
  sub->add_option("--json", o.json, "write what is found to this file, too");
  sub->footer(
      sub->get_footer() +
      "\n\nExit codes: 0 all promises held, or same; 1 not held, not shown by this file (the\n"
      "line says which), or not the same; 2 bad input, or runs of different jobs.\n"
      "Digests are as close as digest_every in the job file says (10 steps).");
}

// Finds an address that was given for a path of this machine; empty: there is none.
std::string address_for_a_path(const CLI::App& sub) {
  static constexpr const char* kAddresses[] = {
      "--join",  "--host",   "--listen",   "--at",      "--advertise",
      "--peers", "--attach", "--metadata", "--command", "--failure-domain"};
  for (const CLI::Option* option : sub.get_options()) {
    const std::string name = option->get_name();
    if (std::find(std::begin(kAddresses), std::end(kAddresses), name) != std::end(kAddresses))
      continue;
    for (const std::string& said : option->results())
      if (said.find("://") != std::string::npos)
        return name + " must be a path of this machine, is the address " + said +
               ", which nothing here understands";
  }
  return {};
}

// Says in one line what was wrong.
std::string misunderstood(const CLI::App& app, const CLI::ParseError& error, int argc,
                          char** argv) {
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands({})) known.push_back(sub->get_name());
  if (app.get_subcommands().empty()) {
    const std::string word = argc > 1 ? argv[1] : "";
    if (!word.empty() && word.front() != '-') return unknown_subcommand(word, known);
    std::string all;
    for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
    if (word.empty()) return "which subcommand? " + all + "; starling help SUBCOMMAND says more";
    return "unknown option " + word + ", expected a subcommand: " + all;
  }
  const CLI::App* sub = app.get_subcommands().front();
  std::string script;
  for (int i = 2; i < argc && std::string(argv[i]) != "--"; ++i)
    if (std::string(argv[i]).ends_with(".py") && script.empty()) script = argv[i];
  for (const std::string& extra : sub->remaining()) {
    if (extra.empty() || extra.front() != '-') continue;
    std::vector<std::string> options;
    for (const CLI::Option* option : sub->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    return unknown_option(extra, sub->get_name(), options, script);
  }
  if (const auto rest = sub->remaining(); !rest.empty() && !script.empty())
    return "unknown word " + rest.front() + "; arguments of the script follow --, as in starling " +
           sub->get_name() + " .. " + script + " -- " + rest.front();
  std::string what = error.what();
  if (what.starts_with(": ")) what.erase(0, 2);  // of an option that help leaves out
  return what + "; starling " + sub->get_name() + " --help lists what there is";
}

}  // namespace

namespace starling {
namespace {

int command(int argc, char** argv, const Registry& registry) {
  end_with_a_line_on_exceptions();
  if (!registry.taken().empty())
    return fail(Error(Code::kBadInput, "this program brings the " + registry.taken() + " twice"));
  starling::actors::run_promptly();
  starling::actors::raise_open_files();
  const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "";
  const bool own = !program.empty() && !program.starts_with("starling");
  CLI::App app{
      (own ? program + ", a program with Starling in it, trains" : "Starling trains") +
      " neural networks on machines that come and go,\nwith the same bits as an undisturbed "
      "run. `" +
      (own ? program : "starling") + " SUBCOMMAND --help` says more."};
  app.footer(
      "\nExit codes: 0 done, 1 a comparison did not hold, 2 bad input, 3 no quorum or too few\n"
      "workers, 4 state lost, 5 internal error, 6 done and the model is not here, 128 and more\n"
      "ended by a signal.");
  app.require_subcommand(1);
  app.get_formatter()->column_width(30);
  RunOptions run_options;
  WorkerCommand worker_options;
  CoordinatorCommand coordinator_options;
  KeysCommand keys_options;
  CheckCommand check_options;
  BenchCommand bench_options;
  AuditCommand audit_options;
  ChaosCommand chaos_options;
  ReplayCommand replay_options;
  add_run(app, run_options);
  add_worker(app, worker_options);
  add_coordinator(app, coordinator_options);
  add_chaos(app, chaos_options);
  add_replay(app, replay_options);
  add_small(app, keys_options, check_options, bench_options);
  add_audit(app, audit_options);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && (arguments[0] == "--version" || arguments[0] == "-V")) return version();
  if (!arguments.empty() && arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.resize(std::min<std::size_t>(arguments.size(), 1));
    arguments.push_back("--help");
  }
  run_options.again = resume_line(argc, argv);
  std::vector<std::string> of_script;
  if (const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
      dashes != arguments.end()) {
    of_script.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "starling: %s\n", misunderstood(app, error, argc, argv).c_str());
    return 2;
  }
  if (auto wrong = address_for_a_path(*app.get_subcommands().front()); !wrong.empty())
    return fail(Error(Code::kBadInput, std::move(wrong)));
  chaos_options.named = chaos_options.job;
  chaos_options.arguments = worker_options.arguments = of_script;
  ScriptJobs scripts(std::move(of_script));
  for (std::string* job : {&run_options.job, &chaos_options.job, &coordinator_options.job,
                           &worker_options.job, &bench_options.job, &check_options.file})
    if (auto written = scripts.take(*job); !written) return fail(written.error());
  if (auto given = scripts.given(worker_options.script); !given) return fail(given.error());
  const std::string chosen = app.get_subcommands().front()->get_name();
  if (chosen == "run") return tools::run(std::move(run_options));
  if (chosen == "worker") return tools::worker(worker_options, argv);
  if (chosen == "coordinator") return tools::coordinator(coordinator_options);
  if (chosen == "chaos") return tools::chaos(chaos_options);
  if (chosen == "replay") return tools::replay(replay_options);
  if (chosen == "keys") return tools::keys(keys_options);
  if (chosen == "check") return tools::check(check_options);
  if (chosen == "bench") return tools::bench(bench_options);
  if (chosen == "audit") return tools::audit(audit_options);
  return tools::version();
}

}  // namespace
}  // namespace starling

int starling::main(int argc, char** argv, const Registry& registry) {
  starling::open_closed_streams();
  starling::tools::end_with_the_parent();
  return end_of_output(command(argc, argv, registry));
}
