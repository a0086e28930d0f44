#pragma once
// Coordinators of `starling run` are one inside this process, or processes of their own.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "actors/messages.h"
#include "core/base/keys.h"
#include "core/base/signals.h"
#include "core/job/job.h"
#include "core/observe/events.h"
#include "core/observe/log.h"
#include "tools/processes/children.h"
#include "tools/processes/signals.h"

namespace starling::tools {

// Returns the order that ends a run which has got this signal.
inline actors::EndRun end_of_run(int signal) {
  if (signal == script_stop_signal()) return {SIGTERM, "ended by its script, whose stop was true"};
  return {static_cast<std::uint8_t>(signal), "ended by " + signal_name(signal)};
}

// How long a process waits for the last steps when the end is told before them.
inline constexpr std::chrono::milliseconds kLastSteps{1000};

struct CoordinatorsOptions {
  Job job;
  std::shared_ptr<const Layout> layout;
  const KeyRing* ring = nullptr;  // borrowed while it is made
  std::string folder;             // of the run: job.toml is there
  std::string keys;               // folder of split keys
  std::uint32_t count = 1;
  std::string host = "127.0.0.1";  // of this machine: they listen there
  std::uint16_t port = 0;          // of the first, the others follow; 0: any free ones
  std::uint32_t workers = 1;
  std::vector<Checkpoint> checkpoints;  // to go on from, oldest first
  std::string log;
};

// Threads: belongs to one thread.
class Coordinators {
 public:
  virtual ~Coordinators() = default;               // ends them
  virtual const std::string& address() const = 0;  // workers join this address
  // Waits up to `time` for events and writes them; the job's end comes last.
  // Errors: kInternal  coordinators or workers tell different stories (P1).
  virtual Result<std::vector<Event>> wait(std::chrono::milliseconds time) = 0;
  // Has the members write a checkpoint now, if the job has any; an event tells of it.
  virtual void ask_checkpoint() = 0;
  // Ends the run in order, as this signal says; an `ended` event tells of it.
  virtual void end_run(int signal) = 0;
  // Notes that a child has ended: true if it was one of ours, which begins again.
  virtual Result<bool> child_ended(pid_t pid) = 0;
};

// Errors: as spawn_coordinator gives them. `events` and `children` must outlive the result.
Result<std::unique_ptr<Coordinators>> start_embedded(const CoordinatorsOptions& options,
                                                     EventWriter& events);
Result<std::unique_ptr<Coordinators>> start_processes(const CoordinatorsOptions& options,
                                                      EventWriter& events, Children& children);

}  // namespace starling::tools
