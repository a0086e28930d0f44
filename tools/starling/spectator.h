#pragma once
// A Spectator shows a person what happens in a run.

#include <cstdint>
#include <optional>
#include <string>

#include "core/job/job.h"
#include "core/observe/event.h"
#include "core/observe/newcomers.h"
#include "core/observe/progress.h"
#include "tools/starling/divergence.h"

namespace starling::tools {

// Returns what a step's number of tokens counts: samples
// for a script or an application, unless it says otherwise.
const char* unit_of(const Job& job);

// Returns "done: version 60, loss 2.75, digest e57a.."
std::string done_text(const event::Done& done);

// Shows events as they come. Threads: belongs to one thread.
class Spectator {
 public:
  explicit Spectator(const Job& job);
  void show(const Event& event);
  // Takes an event that an earlier process of this coordinator showed: diverged() and
  // doubt() count it as one that show() has had. Workers that prepared then do not count.
  void remember(const Event& event);
  // Sets the run's first version; 0 before the call.
  void begins_at(Version from) { divergence_.begins_at(from); }
  void say(const std::string& text) { line_.say(text); }
  void warn(const std::string& text) { line_.warn(text); }
  void close() { line_.close(); }  // the live line stays; later output begins below it
  bool epoch_seen() const { return epoch_seen_; }
  std::size_t world() const { return world_; }  // members that the last step shown had
  // Says why a run that came to its end is no success; empty: it is one.
  std::string diverged() const { return divergence_.text(); }
  // Says from which step on the result is in doubt, and why; empty: it is not.
  std::string doubt() const;

 private:
  void show_epoch(const event::EpochFormed& epoch);
  void show_evaluation(const event::Evaluated& evaluation);
  bool count(const event::StepPassed& step);  // false: another member told it before

  ProgressLine line_;
  Divergence divergence_;
  Newcomers newcomers_;
  std::optional<Version> last_;  // counted
  std::size_t world_ = 0;
  Version doubted_from_ = kNoVersion;
  std::uint64_t mismatches_ = 0;
  bool epoch_seen_ = false;
  bool language_ = false;             // a model of tokens, with held-out ones
  double bytes_of_token_ = 0;         // of those; 0: not known
  std::optional<Version> evaluated_;  // shown
};

}  // namespace starling::tools
