#pragma once
// What happens in a run, from what a coordinator observes to events.jsonl and to what a person
// sees.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/observe/events.h"
#include "core/observe/loss_svg.h"
#include "core/observe/progress.h"
#include "elastic/membership/leader.h"

namespace starling::tools {

// The part of an event that a spectator wants to see.
struct Happening {
  std::optional<ProgressStep> step;
  std::optional<EpochMark> epoch;
  std::string said;                   // a line of its own: "worker-3 lost"; empty: none
  std::optional<Version> checkpoint;  // that is complete
  std::optional<JobEnded> end;
  std::optional<JobEnded> gone;  // the coordinator has ended, the job has not

  static Happening saying(std::string text) {
    Happening happening;
    happening.said = std::move(text);
    return happening;
  }
};

// Writes the event; false if it was told before. Errors: kInternal  two records of one version
// differ (P1).
Result<bool> write_event(EventWriter& events, const elastic::Observation& seen, bool ledger);
Happening happening_of(const elastic::Observation& seen);
std::string notice_said(const std::string& worker, const std::string& source,
                        const std::string& text);
// "done: version 60, loss 2.75, digest e57a.."
std::string done_text(const JobEnded& end);
// What is said of a restart.
std::string restart_text(Version version, const std::string& cause);

// Shows what happens as it comes, and keeps the losses. Threads: belongs to one thread.
class Spectator {
 public:
  explicit Spectator(std::uint64_t steps) : line_(stdout, ProgressStyle::of(stdout), steps) {}
  void show(const Happening& happening);
  void say(const std::string& text) { line_.say(text); }
  void close() { line_.close(); }  // the live line stays; what others print begins below it
  bool epoch_seen() const { return !epochs_.empty(); }
  std::size_t world() const { return world_; }  // members that the last step shown had
  // Why a run that came to its end is none that one wanted; empty: it is.
  std::string diverged() const;
  Result<> save_curve(const std::string& path, const std::string& title) const;

 private:
  ProgressLine line_;
  std::uint64_t steps_ = 0;      // shown
  std::optional<Version> last_;  // shown
  std::size_t world_ = 0;
  std::vector<LossPoint> losses_;  // one in `every_` steps, so that they are bounded
  std::uint64_t every_ = 1;
  std::vector<EpochMark> epochs_;
};

}  // namespace starling::tools
