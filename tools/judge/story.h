#pragma once
// A Story is what events.jsonl says of a run, line by line, for judges
// outside: it drops, corrects and believes nothing on the writer's word.
// Values, but for the clock of now(); story_file.cpp reads lines and files.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/observe/event.h"

namespace starling::judge {

// A Told is an event and the time of its line, in seconds of the run's clock. The line of an epoch comes
// when the epoch's first step is committed, or with the next plan. A number that is not finite is a NaN.
template <class E>
struct Told : E {
  double t = 0;
};

struct Story {
  bool started = false;
  event::Started start;

  // A process id that no process of this machine can have is 0 in these.
  std::vector<Told<event::WorkerChanged>> workers;
  std::vector<Told<event::LeaderElected>> leaders;
  std::vector<Told<event::EpochFormed>> epochs;
  std::vector<Told<event::Exposed>> exposures;
  // These are in file order; a version may stand there twice, which is judged, not repaired.
  std::vector<Told<event::StepPassed>> step_lines;
  std::vector<Told<event::Evaluated>> evaluation_lines;
  std::vector<Told<event::LedgerPassed>> ledger_lines;
  std::vector<Told<event::Restarted>> restarts;
  std::vector<std::string> doubts;  // what the run itself says against its bits
  std::vector<std::string> warnings;
  std::optional<Told<event::Done>> done;
  std::optional<Told<event::Failed>> failed;  // or ended in order, with code 128 + signal
  std::vector<std::string> oddities;          // lines that are no event, or out of place

  // Takes one line, without its end. Any text may come.
  void add(const std::string& line);

  std::map<Version, Told<event::StepPassed>> committed() const;   // the first line of each version
  std::map<Version, Told<event::Evaluated>> evaluations() const;  // likewise
  const Told<event::EpochFormed>* last_epoch() const {
    return epochs.empty() ? nullptr : &epochs.back();
  }
  bool over() const { return done || failed; }
  std::optional<double> end_t() const;  // when the job ended; none: no event tells of an end
  double now() const;                   // the run's clock now; 0 before its start was read
  // Returns milliseconds, of all steps but the first two; 0 if there are none.
  double median_step_ms() const;
};

bool is_member(const event::EpochFormed& epoch, std::uint64_t worker);
// Returns, of each segment, the ids of its holders.
std::vector<std::vector<std::uint64_t>> holders_by_segment(const event::EpochFormed& epoch);

// Returns the worker's name, as it joined; "worker 7" if it never did.
std::string name_of(const Story& story, std::uint64_t id);

// Reads a file to its end; without one the story is empty. A cut last line is an oddity.
Story read_story(const std::string& path);

// A Tail reads a file that grows. Threads: belongs to one thread.
class Tail {
 public:
  explicit Tail(std::string path) : path_(std::move(path)) {}
  // Returns lines finished since the last call; none if there is no such file yet.
  std::vector<std::string> lines();
  // Returns the text after the last finished line.
  const std::string& rest() const { return rest_; }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  std::string rest_;
  std::uint64_t offset_ = 0;
};

double median(std::vector<double> values);  // 0 of none

}  // namespace starling::judge
