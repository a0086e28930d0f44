// These are the options of the commands that train: run, worker, coordinator.

#include <cstdio>
#include <map>

#include "core/observe/event.h"
#include "tools/starling/options.h"

namespace starling::tools {
namespace {

void add_metrics(CLI::App* sub, std::string& address) {
  sub->add_option("--metrics", address,
                  "serve metrics for Prometheus: a port of 127.0.0.1, or HOST:PORT; port 0 takes "
                  "any (default: none)")
      ->type_name("ADDRESS");
}

void add_tensorboard(CLI::App* sub, std::string& folder) {
  sub->add_option(
         "--tensorboard", folder,
         "folder for curves that `tensorboard --logdir` shows: losses, rates, seconds of a step")
      ->check(kNamed);
}

void add_role(CLI::App* sub, starling::WorkerRole& role) {
  using enum starling::WorkerRole;
  sub->add_option_function<std::string>(
         "--role",
         [&role](const std::string& name) {
           for (const auto one : {kBoth, kCompute, kHold})
             if (name == to_string(one)) role = one;
         },
         "both; compute: gets micro-batches and keeps no state, so the loss of any number of them "
         "endangers nothing; hold: keeps state and gets no micro-batch. Some worker must compute, "
         "and some hold. Changes no bits")
      ->check(CLI::IsMember({"both", "compute", "hold"}))
      ->default_str(to_string(role));
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
  CLI::Option* const earlier =
      sub->add_option_function<std::string>(
             "--path",
             [choose, now](const std::string& before) {
               std::fprintf(stderr, "starling: --path %s is now --transport %s\n", before.c_str(),
                            now.at(before).c_str());
               choose(now.at(before));
             })
          ->check(CLI::Validator(
              [now](std::string& before) {
                return now.contains(before)
                           ? std::string()
                           : "--path is now --transport auto, tcp or nccl, and " + before +
                                 " is none of its old values (where data lie, the job file says)";
              },
              ""))
          ->excludes(option)
          ->group("");
  option->remove_excludes(earlier);  // --help would show it without a name
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

}  // namespace

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
                  "learning rate, instead of the job file's; with --resume: from there on")
      ->check(CLI::Number);
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
  sub->add_option("--checkpoints", o.checkpoints,
                  "folder or s3://BUCKET/PREFIX, instead of the job file's");
  add_metrics(sub, o.metrics);
  add_tensorboard(sub, o.tensorboard);
  add_transport(sub, o.transport);
  add_log(sub, o);
}

void add_worker(CLI::App& app, WorkerCommand& o) {
  auto* sub = subcommand(app, "worker",
                         "Joins a job as one worker; SIGTERM, or its cloud, announces its leave.",
                         "starling worker --join out\n"
                         "  starling worker --join worker-3.token\n"
                         "  starling worker --join 10.0.0.1:7000 --keys keys");
  sub->add_option(
         "--join", o.join,
         "the folder of a run of this machine, a file with a join token (starling keys "
         "--split), the token itself, or where the coordinators listen: host:port, for several "
         "with commas, in the order of the keys")
      ->envname(name_of(EnvVar::kJoin))
      ->required();
  sub->add_option("--keys", o.keys,
                  "key file with a worker's key, or folder of split keys; not with a token");
  sub->add_option(
         "--identity-token", o.identity_token,
         "file with a token of the job's identity provider ([identity]), read anew when one "
         "is shown: instead of a key, with --join of join.public (starling keys --split)")
      ->envname(name_of(EnvVar::kIdentityToken))
      ->type_name("FILE");
  sub->add_option(
      "--job", o.job,
      "job file to compare with the one that the coordinators hand over; says where the "
      "data lies here");
  sub->add_option("--data", o.data,
                  "where the data lies here, of shards also s3://BUCKET/PREFIX (default: as the "
                  "job file says)");
  sub->add_option("--weights", o.weights,
                  "where the weights of [model].from lie here (default: as the job file says)");
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
  add_role(sub, o.role);
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
  sub->add_option(
         "--wait", o.wait_s,
         "seconds for a coordinator that does not answer yet; it then says how long (default: "
         "as --job says, or 30)")
      ->check(CLI::Range(1.0, 86400.0));
  sub->add_option("--notice", o.notice_s, "seconds to hand over after SIGTERM")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  add_transport(sub, o.transport);
  add_notices(sub, o.notices);
  sub->add_flag("--acknowledge", o.acknowledge,
                "when the state is handed over, tell the cloud that it need not wait (Azure); not "
                "with several workers on one machine");
  sub->add_option(
      "--save", o.save,
      "write the trained model to this file, or to s3://BUCKET/PREFIX (safetensors; a "
      "language model's config.json and tokenizer beside it; none: to no file; default: "
      "model.safetensors in the working folder, with --quiet none)");
  add_metrics(sub, o.metrics);
  sub->add_option("--drained-code", o.drained_code,
                  "exit code of a worker that an admin has drained or evicted, where 0 would say "
                  "that the training is done (default: 0)")
      ->check(CLI::Range(0, 125));
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
      "votes only after that.\n\n"
      "One that is gone for good is replaced by a spare (`starling keys --spares`), anywhere:\n"
      "starling coordinator --add --replace coordinator-1 --job job.toml --keys coordinator-3 \\\n"
      "    --listen 10.0.0.4:7000 --peers 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000 --workers 8\n"
      "starling coordinator --remove coordinator-1 --keys keys/coordinator-0 --peers .. takes one\n"
      "out alone.");
  sub->add_option("--job", o.job, "job file (not with --remove)");
  sub->add_option(
         "--keys", o.keys,
         "key file with this coordinator's key, or folder of split keys; read again when it "
         "changes")
      ->required();
  sub->add_option("--name", o.name,
                  "its name among the keys (default: that of the only coordinator whose secret is "
                  "there)");
  sub->add_option("--identity-ca", o.identity_ca,
                  "certificates that the identity provider's is checked with, where the job has "
                  "[identity] (default: the system's)")
      ->type_name("FILE");
  sub->add_option("--listen", o.listen, "host:port; port 0 takes any")->capture_default_str();
  sub->add_option(
      "--peers", o.peers,
      "addresses of all coordinators that begin the group, in the order of the key file, lost ones "
      "too; spares may follow; not needed if there is one");
  sub->add_option("--workers", o.workers, "the first epoch waits for so many workers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  sub->add_option("--state", o.state, "folder of its Raft log; keep it between restarts")
      ->capture_default_str();
  sub->add_flag("--new", o.first,
                "the group begins: this coordinator has never run, and its folder is empty");
  auto* add =
      sub->add_flag("--add", o.joins,
                    "the group has begun without this coordinator, which takes part from now "
                    "on; may stay when it is started again")
          ->excludes("--new");
  sub->add_option("--replace", o.replace,
                  "with --add: the name of the coordinator that goes when this one has the log")
      ->needs(add)
      ->check(kNamed);
  sub->add_option("--remove", o.remove,
                  "starts nothing: has the group take out the coordinator of this name, and waits "
                  "for it; with the key of any coordinator, and --peers")
      ->check(kNamed)
      ->excludes(add)
      ->excludes("--new");
  sub->add_option("--out", o.out,
                  "folder for events.jsonl and loss.svg (default: the state folder)");
  sub->add_flag("--resume", o.resume,
                "a job that begins here goes on from the newest complete checkpoint");
  add_metrics(sub, o.metrics);
  add_tensorboard(sub, o.tensorboard);
  sub->add_flag("--child", o.child)->group("");
  sub->add_option("--told", o.told)->group("");
  add_log(sub, o);
}

}  // namespace starling::tools
