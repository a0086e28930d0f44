#pragma once
// What a run has come to, by its events: for `starling status`, and for a line at its end.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/observe/event.h"
#include "core/observe/event_sink.h"

namespace starling {

// A text of a file or of another machine on one line of a terminal: what is not printable is a space.
std::string on_one_line(std::string text);

// Times are Unix times in seconds, of the clock of the process that told. Threads: none; a value. Memory:
// fixed, but for the workers that are there.
class RunStatus {
 public:
  enum class State : std::uint8_t { kWaiting, kTraining, kDone, kEnded, kFailed };

  // Takes the next event. `at`: when it was told.
  void take(const Event& event, double at);

  // Takes a line of events.jsonl, without its end. Errors: as read_event().
  Result<> take_line(std::string_view line);

  State state() const { return state_; }
  bool over() const { return state_ >= State::kDone; }
  double last_at() const { return last_at_; }  // of any event; 0: there was none

  // One JSON object on one line, without its end; docs/status.md lists its keys. What is not known is left out.
  std::string json(double now) const;
  // For people: the first line says where the run is, each further one begins with its subject.
  std::vector<std::string> lines(double now) const;
  // "3 workers lost, 1 fenced, 2 left, 5 joined; pauses 1.2 s in all; 97.1 % of 12:03 in steps". Empty before the first
  // step, and of a run that has failed: no event tells of the workers that a failure takes.
  std::string sums(double now) const;

 private:
  void add(const event::EpochFormed& epoch, double at);
  void add(const event::StepPassed& step, double at);
  std::string state_line(double now) const;
  double seconds(double now) const;       // from the start to now, or to the end
  double effective(double now) const;     // time in steps, of all time since the start; 0 to 1
  double seconds_left(double now) const;  // NaN: not known
  double quiet_s(double now) const;       // since it got on; 0: not worth a word
  // Returns what the member said when it joined; of one that is unknown nothing but zeros.
  event::WorkerChanged joining_of(const event::EpochMember& member) const;
  bool leaves(const event::EpochMember& member) const;
  std::vector<event::WorkerChanged> waiting_members() const;  // joined, and in no epoch

  State state_ = State::kWaiting;
  std::string name_, coordinator_;  // coordinator_: of which the events are; empty: of all of a run
  std::string digest_, reason_;     // of what is over
  std::uint64_t steps_ = 0;
  double begun_ = 0, last_at_ = 0, got_on_at_ = 0;
  bool forced_ = false;  // an epoch was, and no step has passed since
  bool again_ = false;   // steps are done again, whose records are not told again
  Version from_ = 0, next_ = 0;
  std::optional<event::StepPassed> step_;  // the last
  double smoothed_s_ = 0, in_steps_s_ = 0;
  std::optional<event::EpochFormed> epoch_;
  double epoch_at_ = 0;
  std::map<std::string, double> preparing_;              // by name, since when
  std::set<std::string> leaving_;                        // names of workers that have announced it
  std::map<std::uint64_t, event::WorkerChanged> there_;  // workers, by id
  std::set<std::uint64_t> gone_;                         // ids, since the last epoch began
  std::optional<event::LeaderElected> leader_;
  std::optional<event::CoordinatorsChanged> coordinators_;  // none: those that began the group
  std::optional<event::Exposed> exposed_;
  std::optional<Version> checkpoint_;
  double checkpoint_at_ = 0;
  std::optional<event::Evaluated> evaluated_;
  std::uint64_t joined_ = 0, left_ = 0, lost_ = 0, fenced_ = 0, restarts_ = 0, skipped_ = 0;
  double pauses_s_ = 0;  // by which steps took longer, as their epochs were forced
  Version doubted_from_ = kNoVersion;
  std::uint64_t warnings_ = 0;
  std::string warning_;  // the last
  double warning_at_ = 0;
};

// A RunStatus that one thread tells and others ask. Threads: any.
class StatusSink : public EventSink {
 public:
  void on(const Event& event) override;
  // Takes what an earlier process has written to this file of events. What cannot be read is left out.
  void remember(const std::string& path);
  RunStatus now() const;

 private:
  mutable Mutex mutex_;
  RunStatus status_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling
