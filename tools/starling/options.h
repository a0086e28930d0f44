#pragma once
// Each of these adds a subcommand to the command line of `starling`, with options that fill its struct.
// CLI11 comes with this header, and takes six seconds to compile.

#include <cstdlib>
#include <string>

#include "core/base/environment.h"
#include "core/observe/line_format.h"
#include "tools/starling/command_line.h"
#include "tools/starling/commands.h"

namespace starling::tools {

void add_run(CLI::App& app, RunOptions& o);
void add_worker(CLI::App& app, WorkerCommand& o);
void add_coordinator(CLI::App& app, CoordinatorCommand& o);
void add_keys(CLI::App& app, KeysCommand& keys);
void add_check(CLI::App& app, CheckCommand& check);
void add_chaos(CLI::App& app, ChaosCommand& o);
void add_replay(CLI::App& app, ReplayCommand& o);
void add_audit(CLI::App& app, AuditCommand& o);
void add_status(CLI::App& app, StatusCommand& o);
void add_watch(CLI::App& app, WatchCommand& o);
void add_diagnose(CLI::App& app, DiagnoseCommand& o);
void add_admin(CLI::App& app, AdminCommand& o);

template <class Command>
void add_log(CLI::App* sub, Command& command) {
  sub->add_option("--log", command.log, "log lines on stderr: debug, info, warn, error, off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  // The environment hands it to processes that this one starts.
  sub->add_option_function<std::string>(
         "--log-format",
         [](const std::string& format) {
           write_lines_as(format == "ecs" ? LineFormat::kEcs : LineFormat::kText, "");
           ::setenv(name_of(EnvVar::kLogFormat), format.c_str(), 1);
         },
         "lines on stderr: text, or ecs: JSON with the names of the Elastic Common Schema "
         "(default: text)")
      ->check(CLI::IsMember({"text", "ecs"}))
      ->envname(name_of(EnvVar::kLogFormat))
      ->type_name("FORMAT");
}

}  // namespace starling::tools
