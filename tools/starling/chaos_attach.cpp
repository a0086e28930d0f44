// `starling chaos --attach` disturbs a run that another command has started.

#include "tools/starling/chaos_attach.h"

#include <cstdio>
#include <filesystem>

#include "core/formats/job_file.h"
#include "core/job/job.h"
#include "core/job/words.h"
#include "tools/chaos/attached.h"
#include "tools/chaos/command_line.h"
#include "tools/starling/chaos_conclusion.h"
#include "tools/starling/group.h"
#include "tools/starling/report_folder.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

Result<std::vector<const chaos::FaultKind*>> kinds_of(const ChaosCommand& command) {
  const std::string able = chaos::kinds_that(&chaos::FaultKind::attached);
  STARLING_TRY(kinds, chaos::parse_kinds(command.kinds.empty() ? able : command.kinds));
  for (const auto* kind : kinds)
    if (!kind->attached) return bad_input("--attach can do " + able + ", not " + kind->word);
  return std::move(kinds);
}

Result<chaos::Plan> draw_plan(const ChaosCommand& command, const std::string& run,
                              std::vector<const chaos::FaultKind*> kinds) {
  chaos::Draw draw;
  draw.kinds = std::move(kinds);
  draw.seed = command.seed;
  draw.rate = command.rate;
  STARLING_TRY(seconds, seconds_of("--duration", command.duration));
  draw.seconds = seconds;
  // `starling run` writes it there; else the usual lease says how long stops are drawn.
  const auto job = load_job((fs::path(run) / "job.toml").string());
  chaos::Plan plan;
  plan.seed = command.seed;
  plan.lease_ms = job ? job.value().elastic.lease_ms : ElasticSpec{}.lease_ms;
  draw.lease_s = double(*plan.lease_ms) / 1000;
  plan.faults = chaos::draw_faults(chaos::spread(std::move(draw), command.max_faults));
  for (auto& fault : plan.faults) fault.back_s = 0;  // an attached run gets no new workers
  if (plan.faults.empty())
    return bad_input("a plan without a fault; expected more --duration or --rate");
  return plan;
}

std::string repeat_of(const ChaosCommand& command) {
  using job_words::number_text;
  chaos::CommandLine line({"starling", "chaos", "--attach", command.attach});
  line.add({"--seed", std::to_string(command.seed), "--rate", number_text(command.rate)});
  if (!command.kinds.empty()) line.add({"--kinds", command.kinds});
  line.add({"--duration", command.duration, "--max-faults", std::to_string(command.max_faults)});
  line.add({"--keep", std::to_string(command.keep)});
  if (!command.keys.empty()) line.add({"--keys", command.keys});
  line.add({"--pause-ms-max", number_text(command.pause_ms_max), "--out", "NEW"});
  return line.text() + ", on such a run";
}

// Reads `--attach`, which names a folder or a coordinator's address.
Result<std::string> run_of(const std::string& attach) {
  if (fs::is_directory(attach)) return attach;
  const auto address = parse_address(attach);
  if (!address)
    return bad_input("no run: expected its folder or a coordinator's address: " + attach);
  return chaos::run_joined_at("tcp://" + to_string(address.value()));
}

}  // namespace

Result<int> chaos_attached(const ChaosCommand& command) {
  if (command.duration.empty()) return bad_input("--attach needs --duration");
  STARLING_TRY(kinds, kinds_of(command));
  STARLING_TRY(run, run_of(command.attach));
  chaos::AttachOptions options;
  options.run = run;
  options.keys = command.keys;
  options.disturber.workers_min = command.keep;
  options.disturber.all_awake = true;
  chaos::Attached attached(std::move(options), [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  });
  STARLING_TRY(attached.find());
  const chaos::Beginning beginning{
      .workers = attached.workers(), .workers_min = command.keep, .all_awake = true};
  if (const std::string why = chaos::impossible(kinds, beginning); !why.empty())
    return bad_input("no fault can be done, " + why);
  STARLING_TRY(plan, draw_plan(command, run, std::move(kinds)));
  STARLING_TRY(folder, ReportFolder::make(command.out));
  chaos::Report report;
  report.job = attached.story().start.name;
  report.plan = std::move(plan);
  report.plan.steps = attached.story().start.steps;
  report.plan.workers = static_cast<std::uint32_t>(attached.workers());
  report.repeat = repeat_of(command);
  STARLING_TRY(
      write_file((fs::path(folder.path()) / "plan.toml").string(), format_plan(report.plan)));
  std::printf("%s: %zu workers are here, at least %u are left alone\ndisturbed: %zu faults\n",
              report.job.c_str(), attached.workers(), command.keep, report.plan.faults.size());
  std::fflush(stdout);
  const double begun = attached.story().now();
  auto evidence = attached.disturb(report.plan);
  if (!evidence && attached.signal() != 0) return 128 + attached.signal();
  if (!evidence) return std::move(evidence).error();
  report.evidence = std::move(evidence).value();
  report.evidence.pause_ms_max = command.pause_ms_max;
  report.seconds = report.evidence.loud.now() - begun;
  return conclude(std::move(report), folder.path());
}

}  // namespace starling::tools
