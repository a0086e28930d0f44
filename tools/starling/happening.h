#pragma once
// What happens in a run, from what a coordinator observes to events.jsonl and to what a person
// sees.

#include <optional>
#include <string>
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
  std::string said;  // a line of its own: "worker-3 lost"; empty: none
  std::optional<JobEnded> end;
};

// Writes the event. Errors: kInternal  two records of one version differ (P1); kBadInput  the file
// cannot be written.
Result<> write_event(EventWriter& events, const elastic::Observation& seen, bool ledger);
Happening happening_of(const elastic::Observation& seen);
std::string notice_said(const std::string& worker, const std::string& source,
                        const std::string& text);
// What is said of a restart.
std::string restart_text(Version version, const std::string& cause);

// Shows what happens as it comes, and keeps the losses. Threads: belongs to one thread.
class Spectator {
 public:
  explicit Spectator(std::uint64_t steps) : line_(stdout, ProgressStyle::of(stdout), steps) {}
  void show(const Happening& happening);
  void say(const std::string& text) { line_.say(text); }
  bool epoch_seen() const { return !epochs_.empty(); }
  Result<> save_curve(const std::string& path, const std::string& title) const;

 private:
  ProgressLine line_;
  std::vector<LossPoint> losses_;
  std::vector<EpochMark> epochs_;
};

}  // namespace starling::tools
