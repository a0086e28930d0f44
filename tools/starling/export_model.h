#pragma once
// `starling export` makes the model of a checkpoint.

#include <cstdint>
#include <string>

#include "tools/starling/options.h"

namespace starling::tools {

struct ExportCommand {
  // A folder of checkpoints, whose newest is taken, or of one of them; with `merge` also one of adapters.
  std::string checkpoint;
  std::string out;                // folder
  std::uint64_t shard_bytes = 0;  // of a file at most; 0: all is one file
  bool merge = false;             // adapters become part of the weights that they adapt
  std::string base;               // where these are; empty: as the job or the adapters say
};

void add_export(CLI::App& app, ExportCommand& command);
// Returns the exit code.
int export_model(const ExportCommand& command);

}  // namespace starling::tools
