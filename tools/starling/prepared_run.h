#pragma once
// A PreparedRun is a run before its first process: the job, its folder, keys and checkpoints.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/keys.h"
#include "core/base/result.h"
#include "core/formats/checkpoint.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "core/observe/events.h"
#include "tools/starling/commands.h"
#include "tools/starling/group.h"
#include "tools/starling/resume.h"

namespace starling::tools {

inline constexpr const char* kModelFile = "model.safetensors";

// `starling run` makes all of this before it starts a process.
struct PreparedRun {
  Job job;
  std::string folder;  // absolute
  std::shared_ptr<const Layout> layout;
  std::string isa;
  Digest data{};
  std::uint64_t samples = 0;
  std::uint32_t chunk_samples = 0;      // LaneFacts; 0: there are no lanes
  std::vector<std::string> remarks;     // warnings, of data and script
  CheckpointClaim claim;                // outlives all writers of checkpoints
  std::vector<Checkpoint> checkpoints;  // to go on from
  KeyRing ring;
  std::unique_ptr<EventWriter> events;
  std::vector<std::string> notes;  // for people
  std::optional<event::Done>
      finished;  // the folder has this run's end already: no process is started

  JobId id() const { return job_id_of(ring); }
  std::string path(const char* name) const {
    return (std::filesystem::path(folder) / name).string();
  }
  // Keys lie beside the folder, which people copy and publish; they go when the run has ended.
  std::string keys() const { return folder + ".keys"; }
};

// Errors: kBadInput  the job, an option, data, folder or checkpoints; then there is no events file.
Result<PreparedRun> prepare_run(const RunOptions& options);

}  // namespace starling::tools
