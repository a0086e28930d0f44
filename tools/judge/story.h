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

namespace starling::judge {

struct StepSeen {
  double t = 0;
  std::string epoch;                 // in which the reporting worker passed or learned it
  std::optional<double> loss, norm;  // none: not finite
  std::vector<std::optional<double>> metrics;
  double ms = 0;
  std::uint32_t world = 0;
  bool on_device = false;  // its bytes went from device to device
};

// EvaluationSeen tells what held-out data gave with the parameters of a version.
struct EvaluationSeen {
  std::optional<double> loss;  // none: not finite
  std::vector<std::optional<double>> metrics;
};

struct WorkerSeen {
  double t = 0;
  std::uint64_t id = 0;
  std::string what;  // joined, left, lost, fenced
  std::string name;
  int pid = 0;
  std::string phase;  // lost: its phase, as its guard told; empty: not known
};

struct MemberSeen {
  std::uint64_t id = 0;
  std::string name;
  bool draining = false;  // announced its leave
};

// PauseSeen says where the time from stopping to the first pass of a forced
// epoch went, in milliseconds; each part begins where the one before ends.
struct PauseSeen {
  double report = 0;   // stopped; to the report sent
  double plan = 0;     // to the plan received
  double connect = 0;  // to all connections standing
  double compute = 0;  // to the own share done
  double reduce = 0;   // to all totals accepted
  double vote = 0;     // to the vote passed
};

struct EpochSeen {
  double t = 0;  // told when its first step is committed, or the next plan comes
  std::string id, kind, predecessor, cause;
  std::vector<MemberSeen> members;                 // index = rank
  std::optional<Version> base;                     // none: prepared
  std::vector<std::vector<SegmentRange>> holders;  // per rank
  std::size_t moves = 0;
  std::optional<double> detect_ms, form_ms, resume_ms;
  std::optional<PauseSeen> pause;  // of the member that passed first after a loss

  bool has(std::uint64_t worker) const;
  // Returns, of each segment, the ids of its holders.
  std::vector<std::vector<std::uint64_t>> holders_by_segment() const;
};

struct ExposureSeen {
  double t = 0;
  std::string epoch;
  std::uint32_t segments = 0, copies_min = 0, wanted = 0;
};

struct LedgerRowSeen {
  std::uint64_t micro_batch = 0, worker = 0;
};

struct LeaderSeen {
  double t = 0;
  std::uint64_t term = 0;
  std::uint32_t coordinator = 0;
  int pid = 0;
  double election_ms = 0;  // an election begins between this and twice this after its loss
};

struct DoneSeen {
  double t = 0;
  Version version = 0;
  std::string digest;
};

// RestartSeen: steps from this version on were done again, from a checkpoint.
struct RestartSeen {
  double t = 0;
  Version version = 0;
  std::string lost;  // epoch whose state was gone
};
struct FailedSeen {
  double t = 0;
  int code = 0;
  std::string reason;
};

struct Story {
  bool started = false;
  std::uint64_t steps = 0, micro_batches = 0;  // of the job
  std::int64_t monotonic_ns = 0;               // the clock's value at t = 0
  std::string name, address, keys;

  std::vector<WorkerSeen> workers;
  std::vector<EpochSeen> epochs;
  std::vector<ExposureSeen> exposures;
  std::vector<LeaderSeen> leaders;
  // These are in file order; a version may stand there twice, which is judged, not repaired.
  std::vector<std::pair<Version, StepSeen>> step_lines;
  std::vector<std::pair<Version, EvaluationSeen>> evaluation_lines;
  std::vector<std::pair<Version, std::vector<LedgerRowSeen>>> ledger_lines;
  std::vector<RestartSeen> restarts;
  std::vector<std::string> doubts;  // what the run itself says against its bits
  std::vector<std::string> warnings;
  std::optional<DoneSeen> done;
  std::optional<FailedSeen> failed;
  std::vector<std::string> oddities;  // lines that are no event, or out of place

  // Takes one line, without its end. Any text may come.
  void add(const std::string& line);

  std::map<Version, StepSeen> committed() const;          // the first line of each version
  std::map<Version, EvaluationSeen> evaluations() const;  // likewise
  const EpochSeen* last_epoch() const { return epochs.empty() ? nullptr : &epochs.back(); }
  bool over() const { return done || failed; }
  std::optional<double> end_t() const;  // when the job ended; none: no event tells of an end
  double now() const;                   // the run's clock now; 0 before its start was read
  // Returns milliseconds, of all steps but the first two; 0 if there are none.
  double median_step_ms() const;
};

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
