#pragma once
// A DataReader has the processes of a script read its data beside passes, a batch at a time and in a
// small part of their time (Reading); Identity::data covers only samples that are drawn.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/script/processes.h"
#include "actors/script/reading.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::actors::script {

// Threads: any, each with a Process of its own.
class DataReader {
 public:
  explicit DataReader(const PythonSpec& spec) : script_(spec.script), samples_(spec.samples) {}

  // sequences: of each batch that is read. Nothing is read before this call. Call it before
  // processes start.
  void begin_with(std::uint32_t sequences);
  // Returns how far a new process has read; null before begin_with().
  std::shared_ptr<Reading::Process> begin();

  DataRead read() const;
  // Says why a sample that was read is refused; empty: none is.
  std::string wrong() const;
  // Reads batches, as many as passes of the process, of which one took so long, have time for.
  void read_on(Processes& processes, Process& process, std::chrono::steady_clock::duration pass);
  // Reads on, at once and with all processes that wait, until they have read all, there
  // is none, or `go_on` says no. For the end of a job, where no pass follows.
  void read_rest(Processes& processes, const std::function<bool()>& go_on);

 private:
  bool read_one(Processes& processes, Process& process, bool paced);
  std::string read_otherwise(std::uint64_t batch) const STARLING_REQUIRES(mutex_);

  const std::string script_;
  const std::uint64_t samples_;
  mutable Mutex mutex_;
  std::uint32_t sequences_ STARLING_GUARDED_BY(mutex_) = 0;
  std::optional<Reading> reading_ STARLING_GUARDED_BY(mutex_);  // once begin_with() was called
  std::string wrong_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling::actors::script
