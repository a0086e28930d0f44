// The command line of `starling`, and of programs with models of their own.

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "actors/files.h"
#include "actors/scheduling.h"
#include "core/base/environment.h"
#include "core/base/s3_place.h"
#include "core/base/standard_streams.h"
#include "core/observe/line_format.h"
#include "tools/processes/signals.h"
#include "tools/public/starling.h"
#include "tools/starling/exit.h"
#include "tools/starling/export_model.h"
#include "tools/starling/generate.h"
#include "tools/starling/launch.h"
#include "tools/starling/options.h"
#include "tools/starling/resume.h"
#include "tools/starling/script_jobs.h"
#include "tools/starling/shard.h"
#include "tools/starling/tokenize.h"

namespace {

using namespace starling::tools;

// Finds an address that was given for a path of this machine; empty: there is none.
std::string address_for_a_path(const CLI::App& sub) {
  static constexpr const char* kAddresses[] = {
      "--join",           "--host",   "--listen",   "--at",      "--advertise",
      "--peers",          "--attach", "--metadata", "--metrics", "--command",
      "--failure-domain", "where",    "--prompt",   "--stop"};
  static constexpr const char* kStores[] = {"--checkpoints", "--data",    "--to", "--save",
                                            "file",          "checkpoint"};  // s3://BUCKET/PREFIX
  for (const CLI::Option* option : sub.get_options()) {
    const std::string name = option->get_name();
    if (std::find(std::begin(kAddresses), std::end(kAddresses), name) != std::end(kAddresses))
      continue;
    const bool store = std::find(std::begin(kStores), std::end(kStores), name) != std::end(kStores);
    for (const std::string& said : option->results())
      if (said.find("://") != std::string::npos && !(store && starling::s3::is_place(said)))
        return name + " must be " + (store ? "s3://BUCKET/PREFIX or " : "") +
               "a path of this machine, is the address " + said +
               ", which nothing here understands";
  }
  return {};
}

}  // namespace

namespace starling {
namespace {

int command(int argc, char** argv, const Registry& registry) {
  end_with_a_line_on_exceptions();
  // An error in the options is written before they are read, in the format that --log-format or the environment names.
  bool ecs = environment().value(EnvVar::kLogFormat) == "ecs";
  for (int i = 1; i + 1 < argc; ++i)
    if (std::string(argv[i]) == "--log-format") ecs = std::string(argv[i + 1]) == "ecs";
  if (ecs) write_lines_as(LineFormat::kEcs, "");
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
          (own ? program : "starling") + " SUBCOMMAND --help` says more.",
      own ? program : "starling"};
  app.footer(
      "\nExit codes: 0 done, 1 a comparison did not hold, the job diverged, or on_mismatch ended "
      "it,\n"
      "2 bad input, 3 no quorum or too few workers, 4 state lost, 5 internal error, 6 done and "
      "the\n"
      "model is not here, 128 and more ended by a signal.");
  app.require_subcommand(1);
  app.get_formatter()->column_width(30);
  RunOptions run_options;
  WorkerCommand worker_options;
  CoordinatorCommand coordinator_options;
  LaunchCommand launch_options;
  KeysCommand keys_options;
  CheckCommand check_options;
  ExportCommand export_options;
  TokenizeCommand tokenize_options;
  ShardCommand shard_options;
  GenerateCommand generate_options;
  AuditCommand audit_options;
  StatusCommand status_options;
  WatchCommand watch_options;
  AdminCommand admin_options;
  DiagnoseCommand diagnose_options;
  ChaosCommand chaos_options;
  ReplayCommand replay_options;
  add_run(app, run_options);
  add_worker(app, worker_options);
  add_coordinator(app, coordinator_options);
  add_chaos(app, chaos_options);
  add_replay(app, replay_options);
  add_status(app, status_options);
  add_watch(app, watch_options);
  add_admin(app, admin_options);
  add_diagnose(app, diagnose_options);
  add_launch(app, launch_options);
  add_keys(app, keys_options);
  add_check(app, check_options);
  add_tokenize(app, tokenize_options);
  add_shard(app, shard_options);
  add_generate(app, generate_options);
  add_export(app, export_options);
  add_audit(app, audit_options);
  subcommand(app, "version", "Version, compiler, libraries, instruction set.", "starling version");
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && (arguments[0] == "--version" || arguments[0] == "-V")) return version();
  run_options.again = resume_line(argc, argv);
  if (own) launch_options.program = program;
  std::vector<std::string> of_script;
  if (const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
      dashes != arguments.end()) {
    of_script.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  if (const auto ended = parse(app, "starling", std::move(arguments))) return *ended;
  if (auto wrong = address_for_a_path(*app.get_subcommands().front()); !wrong.empty())
    return fail(Error(Code::kBadInput, std::move(wrong)));
  chaos_options.named = chaos_options.job;
  replay_options.named = replay_options.job;
  chaos_options.arguments = replay_options.arguments = worker_options.arguments = of_script;
  ScriptJobs scripts(std::move(of_script));
  for (std::string* job :
       {&run_options.job, &chaos_options.job, &replay_options.job, &coordinator_options.job,
        &worker_options.job, &launch_options.job, &check_options.file})
    if (auto written = scripts.take(*job); !written) return fail(written.error());
  if (auto given = scripts.given(worker_options.script); !given) return fail(given.error());
  const std::string chosen = app.get_subcommands().front()->get_name();
  if (chosen == "run") return tools::run(std::move(run_options));
  if (chosen == "worker") return tools::worker(worker_options, argv);
  if (chosen == "coordinator") return tools::coordinator(coordinator_options);
  if (chosen == "chaos") return tools::chaos(chaos_options);
  if (chosen == "replay") return tools::replay(replay_options);
  if (chosen == "launch") return tools::launch(launch_options);
  if (chosen == "keys") return tools::keys(keys_options);
  if (chosen == "check") return tools::check(check_options);
  if (chosen == "export") return tools::export_model(export_options);
  if (chosen == "tokenize") return tools::tokenize(tokenize_options);
  if (chosen == "shard") return tools::shard(shard_options);
  if (chosen == "generate") return tools::generate(generate_options);
  if (chosen == "audit") return tools::audit(audit_options);
  if (chosen == "status") return tools::status(status_options);
  if (chosen == "watch") return tools::watch(watch_options);
  if (chosen == "diagnose") return tools::diagnose(diagnose_options);
  if (chosen == "admin") return tools::admin(admin_options);
  return tools::version();
}

}  // namespace
}  // namespace starling

int starling::main(int argc, char** argv, const Registry& registry) {
  starling::open_closed_streams();
  ::signal(SIGCHLD, SIG_DFL);  // ignored, it has the kernel reap children before waitpid()
  starling::tools::end_with_the_parent(environment());  // the first call of environment()
  return end_of_output(command(argc, argv, registry));
}
