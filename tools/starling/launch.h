#pragma once
// `starling launch` writes the files with which an engine runs a job (tools/launch), and its keys.

#include <cstdint>
#include <string>

#include "tools/launch/plan.h"
#include "tools/starling/command_line.h"

namespace starling::tools {

struct LaunchCommand {
  std::string program;  // where the job runs; empty: as the engine finds it
  std::string engine, job;
  std::string out;   // new files below it; empty: a folder named as the engine
  std::string name;  // of the job there; empty: the job file's
  std::string at;    // where coordinators listen
  std::string keys;  // that are there, instead of new ones
  std::string data;
  std::uint32_t workers = 1, min_workers = 0;  // 0: two, so that all state has a copy
  std::uint32_t threads = 0, notice_s = 0;
  std::string partition, coordinator_partition;
  std::string image, volume, name_space, queue, gpu;
  WorkersAs workers_as = WorkersAs::kJob;
  bool identity = false;  // LaunchPlan's
  std::uint32_t coordinators = 0;
  bool submit = false;
};
void add_launch(CLI::App& app, LaunchCommand& command);
int launch(const LaunchCommand& command);

}  // namespace starling::tools
