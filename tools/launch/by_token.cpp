#include "tools/launch/by_token.h"

namespace starling::tools {
namespace {

constexpr const char* kCoordinatorScript = R"sh(#!/bin/sh
# Decides who takes part in the job; computes nothing. Runs at {{host}}, a machine that stays, in the folder of this
# file. Started again it goes on with what is in its state.
cd "$(dirname "$0")" || exit
{{begin}}
exec {{program}} coordinator --job {{job}} --keys keys/{{key}} \
    --listen 0.0.0.0:{{port}} --peers {{peers}} --workers {{min_workers}} \
    --state {{self}}-state --out {{out}} $new
)sh";

}  // namespace

std::string of_coordinator(const LaunchPlan& plan, const std::string& word, std::size_t i) {
  return plan.coordinators.size() == 1 ? word : word + "-" + std::to_string(i);
}

void add_coordinators(const LaunchPlan& plan, Launch& launch) {
  for (std::size_t i = 0; i < plan.coordinators.size(); ++i) {
    const std::string self = of_coordinator(plan, "coordinator", i);
    launch.files.push_back(
        {self + ".sh",
         fill(kCoordinatorScript,
              {{"host", plan.coordinators[i].host},
               {"port", std::to_string(plan.coordinators[i].port)},
               {"begin", begin_lines(self + "-state", plan.job, "\n")},
               {"program", shell_word(plan.program)},
               {"job", plan.job_file.empty() ? "job.toml" : shell_word(plan.job_file)},
               {"key", "coordinator-" + std::to_string(i)},
               {"peers", addresses(plan)},
               {"min_workers", std::to_string(plan.min_workers)},
               {"self", self},
               {"out", of_coordinator(plan, "out", i)}})});
  }
  if (plan.job_file.empty()) launch.files.push_back({"job.toml", format_job(plan.job)});
}

std::string coordinators_to_type(const LaunchPlan& plan) {
  std::string text;
  for (std::size_t i = 0; i < plan.coordinators.size(); ++i) {
    const std::string self = of_coordinator(plan, "coordinator", i);
    text += (i == 0 ? "At " : "\n\nAt ") + plan.coordinators[i].host + ":\n\n" +
            code_block({"nohup sh " + self + ".sh > " + self + ".log 2>&1 < /dev/null &"});
  }
  return text;
}

std::string worker_options(const LaunchPlan& plan) {
  return (plan.data.empty() ? "" : "--data " + shell_word(plan.data) + " ") + "--threads " +
         std::to_string(plan.threads ? plan.threads : 1) + " --notice " +
         std::to_string(plan.notice_s) + " --wait " + std::to_string(wait_s(plan.job));
}

Result<> check_lines(const LaunchPlan& plan) {
  for (const Address& at : plan.coordinators) {
    STARLING_TRY(check_name("the host of --at", at.host, ".-:"));
  }
  STARLING_TRY(check_line("the job file's path", plan.job_file));
  STARLING_TRY(check_line("--program", plan.program));
  STARLING_TRY(check_line("the path of Python", plan.python));
  STARLING_TRY(check_line("--image", plan.image));
  return check_line("--data", plan.data);
}

}  // namespace starling::tools
