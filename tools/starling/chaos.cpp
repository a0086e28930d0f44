// `starling chaos` runs a job undisturbed and disturbed, and judges each promise.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "core/base/exit.h"
#include "core/formats/job_file.h"
#include "core/job/words.h"
#include "tools/chaos/command_line.h"
#include "tools/chaos/stage.h"
#include "tools/starling/chaos_attach.h"
#include "tools/starling/chaos_conclusion.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/report_folder.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPaceSteps = 30;  // steps that tell how long a step takes

class ChaosRun {
 public:
  ChaosRun(const ChaosCommand& command, std::string folder)
      : command_(command), folder_(std::move(folder)) {}

  Result<int> go() {
    const auto begun = Clock::now();
    STARLING_TRY(job, load_job(command_.job));
    job_ = std::move(job);
    STARLING_TRY(choice, chaos::parse_link_choice(command_.links));
    // Making the plan may take a run to find the pace: a user without the right is told before.
    if (choice == chaos::LinkChoice::kNamespaces)
      if (auto tried = chaos::Links::make(choice, plan_); !tried) return std::move(tried).error();
    auto made = make_plan();
    if (signal_ != 0) return 128 + signal_;
    if (!made) return std::move(made).error();
    STARLING_TRY(links, chaos::Links::make(choice, plan_));
    links_ = std::move(links);
    if (links_ && !command_.command.empty()) return behind_no_links();
    STARLING_TRY(write_file(path("plan.toml"), chaos::format_plan(plan_)));
    if (links_) std::printf("links: %s\n", links_->text().c_str());
    chaos::Report report;
    std::optional<judge::Story> quiet;
    std::string reference = command_.reference;
    chaos::Stage stage(stage_options(), [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    });
    const auto ended = [&](Error&& error) -> Result<int> {
      if (stage.signal() != 0) return 128 + stage.signal();
      return std::move(error);
    };
    if (reference.empty()) {
      std::printf("undisturbed: %u workers, %llu steps\n", plan_.workers,
                  static_cast<unsigned long long>(plan_.steps));
      std::fflush(stdout);
      auto story = stage.quiet("quiet", plan_.steps);
      if (!story) return ended(std::move(story).error());
      quiet = std::move(story).value();
      reference = to_string(quiet->done->digest);
      std::printf("digest %s, a step takes %.1f ms\n", reference.c_str(), quiet->median_step_ms());
    } else {
      std::printf("digest %s, as told\n", reference.c_str());
    }
    std::printf("disturbed: %u workers, %llu steps, %zu faults\n", plan_.workers,
                static_cast<unsigned long long>(plan_.steps), plan_.faults.size());
    std::fflush(stdout);
    auto evidence = stage.disturbed();
    if (!evidence) return ended(std::move(evidence).error());
    report.evidence = std::move(evidence).value();
    report.evidence.quiet = std::move(quiet);
    report.evidence.reference_digest = reference;
    report.evidence.pause_ms_max = command_.pause_ms_max;
    report.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    return conclude(std::move(report));
  }

 private:
  std::string path(const char* name) const { return (fs::path(folder_) / name).string(); }

  chaos::StageOptions stage_options() const {
    chaos::StageOptions options;
    options.job_path = command_.job;
    options.job = job_;
    options.command = command_.command;
    options.plan = plan_;
    options.folder = folder_;
    options.disturber.workers_max =
        command_.workers_max != 0 ? command_.workers_max : 2 * plan_.workers;
    options.disturber.workers_min = std::min(command_.keep, plan_.workers);
    options.disturber.checkpoints = job_.checkpoint.on();
    options.disturber.last_copies = command_.last_copies;
    options.links = links_.get();
    options.log = command_.log;
    return options;
  }

  Result<> make_plan() {
    if (!command_.plan.empty()) {
      STARLING_TRY(plan, chaos::load_plan(command_.plan));
      plan_ = std::move(plan);
      if (plan_.faults.empty())
        return bad_input("a plan without a fault; reading " + command_.plan);
      std::vector<const chaos::FaultKind*> kinds;
      for (const auto& fault : plan_.faults) kinds.push_back(fault.kind);
      STARLING_TRY(check_possible(kinds));
    } else {
      STARLING_TRY(draw_plan());
    }
    return ok();
  }

  static Error behind_no_links() {
    return bad_input(
        "workers of --command cannot be put behind links: --kinds without partition, apart, "
        "slow-link and corrupt");
  }

  // Tells what is known before a process is started.
  Result<> check_possible(const std::vector<const chaos::FaultKind*>& kinds) const {
    for (const auto* kind : kinds)
      if (!command_.command.empty() && kind->link != chaos::FaultKind::Link::kNothing)
        return behind_no_links();
    const auto options = stage_options();
    const std::string why = chaos::impossible(
        kinds, {plan_.workers, options.disturber.workers_min, false, plan_.coordinators,
                options.disturber.checkpoints, options.disturber.last_copies});
    if (why.empty()) return ok();
    return bad_input("no fault of the plan can be done, " + why);
  }

  Result<> draw_plan() {
    plan_.seed = command_.seed;
    plan_.steps = command_.steps.value_or(job_.steps);
    plan_.workers = command_.workers;
    plan_.threads = command_.threads;
    plan_.coordinators = command_.coordinators;
    plan_.lease_ms = command_.lease_ms;
    plan_.replicas = command_.replicas;
    chaos::Draw draw;
    STARLING_TRY(kinds, chaos::parse_kinds(command_.kinds.empty()
                                               ? chaos::kinds_that(&chaos::FaultKind::usual)
                                               : command_.kinds));
    STARLING_TRY(check_possible(kinds));
    draw.kinds = std::move(kinds);
    draw.seed = command_.seed;
    draw.rate = command_.rate;
    draw.lease_s = double(plan_.lease_ms.value_or(job_.elastic.lease_ms)) / 1000;
    if (!command_.duration.empty()) {
      STARLING_TRY(seconds, seconds_of("--duration", command_.duration));
      if (seconds == 0) return bad_input("--duration must be more than 0");
      draw.seconds = seconds;
    }
    if (command_.duration.empty()) {
      STARLING_TRY(pace, measure_pace());
      draw.seconds = double(plan_.steps) * pace;
    } else if (!command_.steps) {
      // The job must outlast the faults, which only slow it down.
      STARLING_TRY(pace, measure_pace());
      plan_.steps = std::max(kPaceSteps, std::uint64_t(std::ceil(draw.seconds / pace)));
    }
    plan_.faults = chaos::draw_faults(spread(draw, command_.max_faults));
    if (plan_.faults.empty())
      return bad_input("a plan without a fault: about " + std::to_string(draw.seconds) +
                       " s at --rate " + std::to_string(draw.rate) +
                       "; expected more of one or the other");
    return ok();
  }

  // Returns the seconds of an undisturbed step.
  Result<double> measure_pace() {
    const std::uint64_t steps = std::min(kPaceSteps, job_.steps);
    chaos::Stage stage(stage_options(), [](const std::string&) {});
    auto story = stage.quiet("pace", steps);
    signal_ = stage.signal();
    if (!story) return std::move(story).error();
    const double ms = story.value().median_step_ms();
    return ms > 0 ? ms / 1000 : 1.0;
  }

  Result<int> conclude(chaos::Report report) {
    report.job = job_.name;
    if (links_) report.links = links_->text();
    report.plan = plan_;
    report.repeat = repeat();
    return tools::conclude(std::move(report), folder_);
  }

  // Returns a command line with all that the plan does not say.
  std::string repeat() const {
    chaos::CommandLine line({"starling", "chaos", command_.named, "--plan", path("plan.toml")});
    const ChaosCommand usual;
    if (!command_.command.empty()) line.add({"--command", command_.command});
    if (!command_.reference.empty()) line.add({"--reference", command_.reference});
    if (command_.links != usual.links) line.add({"--links", command_.links});
    if (command_.keep != usual.keep) line.add({"--keep", std::to_string(command_.keep)});
    if (command_.workers_max != usual.workers_max)
      line.add({"--workers-max", std::to_string(command_.workers_max)});
    if (command_.last_copies) line.add({"--last-copies"});
    if (command_.pause_ms_max != usual.pause_ms_max)
      line.add({"--pause-ms-max", job_words::number_text(command_.pause_ms_max)});
    line.add({"--out", folder_ + "-again"});
    if (!command_.arguments.empty()) line.add({"--"});
    for (const std::string& argument : command_.arguments) line.add({argument});
    return line.text();
  }

  const ChaosCommand command_;
  const std::string folder_;
  Job job_;
  chaos::Plan plan_;
  int signal_ = 0;                       // the one that ended the run for the pace
  std::unique_ptr<chaos::Links> links_;  // outlives every process that uses them; null: left alone
};

Result<int> chaos_command(const ChaosCommand& command) {
  if (!command.attach.empty()) return chaos_attached(command);
  if (command.job.empty()) return bad_input("expected a job file, or --attach DIR");
  for (const char* word : {"{join}", "{keys}"})
    if (!command.command.empty() && command.command.find(word) == std::string::npos)
      return bad_input(std::string("--command must have ") + word + ", is " + command.command);
  if (command.plan.empty() == !command.random)
    return bad_input("expected either --plan FILE or --random");
  STARLING_TRY(folder, ReportFolder::make(command.out));
  return ChaosRun(command, folder.path()).go();
}

}  // namespace

int chaos(const ChaosCommand& command) {
  // An error is no verdict: the demand cannot be tested.
  auto code = chaos_command(command);
  return code ? code.value() : fail(kExitBadInput, code.error().text());
}

}  // namespace starling::tools
