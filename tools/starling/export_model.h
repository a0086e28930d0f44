#pragma once
// `starling export` makes the model of a checkpoint.

#include <cstdint>
#include <string>

#include "tools/starling/options.h"

namespace starling::tools {

struct ExportCommand {
  std::string checkpoint;  // a folder of checkpoints, whose newest is taken, or of one of them
  std::string out;         // folder
  std::uint64_t shard_bytes = 0;  // of a file at most; 0: all is one file
};

void add_export(CLI::App& app, ExportCommand& command);
// Returns the exit code.
int export_model(const ExportCommand& command);

}  // namespace starling::tools
