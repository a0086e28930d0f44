#pragma once
// What engines have in common that give a worker nothing but an image or a folder, and its token: Ray, SkyPilot,
// dstack. The coordinators run on machines that stay, each by a script.

#include <string>

#include "tools/launch/plan.h"
#include "tools/launch/text.h"

namespace starling::tools {

// "coordinator" for the only one, else "coordinator-1".
std::string of_coordinator(const LaunchPlan& plan, const std::string& word, std::size_t i);

// Adds a script for each coordinator, and the job file that a script has described.
void add_coordinators(const LaunchPlan& plan, Launch& launch);

// What README.md says of them: what to type on each of their machines.
std::string coordinators_to_type(const LaunchPlan& plan);

// The options of a worker, for a shell: --data, --threads, --notice, --wait.
std::string worker_options(const LaunchPlan& plan);

// Errors: kBadInput  a text of the plan that is not one line.
Result<> check_lines(const LaunchPlan& plan);

}  // namespace starling::tools
