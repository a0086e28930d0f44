// These are the options of the commands that make and check files: keys, check.

#include "tools/starling/options.h"

namespace starling::tools {

void add_keys(CLI::App& app, KeysCommand& keys) {
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
  make->add_option("--revoke", keys.revoke,
                   "let this worker (or the client, or an admin) in no longer")
      ->type_name("NAME");
  make->add_option("--add", keys.add,
                   "let in another worker, worker-N, or admin, admin-NAME, and write its file")
      ->type_name("NAME");
  make->require_option(1);
  sub->add_option("--coordinators", keys.coordinators, "pairs of coordinators")
      ->check(CLI::IsMember({1, 3, 5}))
      ->capture_default_str();
  sub->add_option("--spares", keys.spares,
                  "further pairs of coordinators, for those that may take the place of lost ones "
                  "while the job runs")
      ->check(CLI::Range(0, 59))
      ->capture_default_str();
  sub->add_option("--workers", keys.workers, "pairs of workers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  sub->add_option(
         "--at", keys.at,
         "addresses of the coordinators, in order: also writes worker-N.token, one line "
         "that is all a worker needs to join, and join.public, for workers with a token of "
         "an identity provider")
      ->type_name("ADDRESSES");
  auto* there = sub->add_option("--keys", keys.keys, "keys that are there: the folder, or a file");
  for (const char* change : {"--token", "--revoke", "--add"})
    make->get_option(change)->needs(there);
  make->get_option("--token")->needs(sub->get_option("--at"));
  make->get_option("--out")->excludes(sub->get_option("--at"));
}

void add_check(CLI::App& app, CheckCommand& check) {
  auto* sub =
      subcommand(app, "check",
                 "Reads a job or key file, a trained model, a folder of checkpoints or a reference "
                 "file and says what is wrong. A reference file is computed again and compared.",
                 "starling check tests/fixtures/gpt-micro.safetensors");
  sub->add_option("file", check.file,
                  "job (.toml), keys, model or reference (.safetensors), folder of checkpoints or "
                  "of shards (index.json), also s3://BUCKET/PREFIX")
      ->required();
  sub->add_option("--isa", check.isa, "instruction set to compute with")
      ->check(CLI::IsMember({"auto", "reference", "avx2", "avx512", "cuda"}))
      ->capture_default_str();
  sub->add_option("--workers", check.workers,
                  "how many workers that hold state a job is to have: memory and bytes of each (4)")
      ->check(CLI::Range(1, 4096));
  sub->add_option("--threads", check.threads, "compute threads of each (1)")
      ->check(CLI::Range(1, 256));
  auto* bf16 = sub->add_flag_callback(
      "--bf16", [&check] { check.precision = starling::Precision::kBf16; },
      "a GPU computes the first gradient of a reference file in bf16");
  sub->add_flag_callback(
         "--fp16", [&check] { check.precision = starling::Precision::kFp16; },
         "the same in fp16, with a scaled loss")
      ->excludes(bf16);
}

void add_status(CLI::App& app, StatusCommand& o) {
  auto* sub = subcommand(app, "status",
                         "Says where a run is: its step, who works, who decides, what is written, "
                         "what was lost.",
                         "starling status out --watch\n  starling status http://10.0.0.1:9464");
  sub->add_option("where", o.where,
                  "folder of a run (--out of `run` or `coordinator`), or the address of its "
                  "--metrics, http://HOST:PORT")
      ->required();
  sub->add_flag("--watch", o.watch, "again each second, until the run is over");
  sub->add_flag("--json", o.json, "one JSON object a line (docs/status.md)");
}

void add_watch(CLI::App& app, WatchCommand& o) {
  auto* sub = subcommand(app, "watch",
                         "Shows a run in a browser: workers, epochs, loss and pauses over time, "
                         "while it goes on and afterwards.",
                         "starling watch out --http 8000\n  starling watch out --out page.html");
  sub->add_option("where", o.where, "folder of a run (--out of `run` or `coordinator`)")
      ->required();
  sub->add_option("--http", o.http,
                  "port (of 127.0.0.1) or HOST:PORT of the page (default: any port)");
  sub->add_option("--out", o.out, "new file that the page is written to, once, instead")
      ->excludes("--http");
}

void add_diagnose(CLI::App& app, DiagnoseCommand& o) {
  auto* sub = subcommand(app, "diagnose",
                         "Says what each thread of each worker on this machine does or waits for, "
                         "and its stack, of one that hangs as well.",
                         "starling diagnose out\n  starling diagnose 4242");
  sub->add_option("where", o.where, "folder of a run (as of `status`), or numbers of processes")
      ->required();
  sub->add_flag("--json", o.json, "a JSON object a line for each process (docs/status.md)");
}

void add_admin(CLI::App& app, AdminCommand& o) {
  auto* sub = subcommand(
      app, "admin",
      "Steers a run that goes on, under the key of an admin.\n"
      "  drain WORKER    the worker hands over what it holds and leaves, without a pause\n"
      "  evict WORKER    the worker is left out at once, as one that hangs\n"
      "  checkpoint      one is written of the next step\n"
      "  stop            the run ends in order, with a checkpoint if the job has them\n"
      "  rate NUMBER     takes the place of [optimizer].peak_rate from the next step on, at all\n"
      "                  workers alike; the schedule stays",
      "starling admin drain worker-2 out\n"
      "  starling admin rate 3e-4 out\n"
      "  starling admin stop 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000 --keys keys");
  sub->add_option("action", o.action, "drain, evict, checkpoint, stop or rate")
      ->check(CLI::IsMember({"drain", "evict", "checkpoint", "stop", "rate"}))
      ->required();
  sub->add_option("where", o.words,
                  "of drain and evict the worker first, of rate the number; then the run: its "
                  "folder (--out of `run` or "
                  "`coordinator`), or the addresses of its coordinators, as of worker --join")
      ->required()
      ->expected(1, 2);
  sub->add_option("--keys", o.keys, "a key file, or a folder of split keys, instead of the run's")
      ->type_name("PATH");
  sub->add_option(
      "--name", o.name,
      "of the key, admin-NAME (default: admin; of a key file, the admin's that is in it)");
  sub->add_flag("--now", o.now, "stop: without a checkpoint");
  sub->add_option("--wait", o.wait_s, "seconds, until this command waits no longer")
      ->check(kWhole)
      ->check(CLI::Range(1u, 1'000'000u))
      ->capture_default_str();
}

}  // namespace starling::tools
