#pragma once
// A History is what events.jsonl says of a run: the lines that the promises need, in order.
//
// This code knows the format (core/observe/events.h) and reads it by itself on purpose: it shares
// no code with the writer, nor with the other tools' reader (core/observe/event_reader.h), so that
// an error there is not repeated here. Pure: lines in, facts or the first wrong line out. Memory:
// some hundred bytes for a step, 16 for each row of its ledger, whatever the length of the lines.
//
// Threads: none; values.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace starling::audit {

// A Line counts from 1 in a file; in merged histories the
// number of the file, from 0, stands above kFileShift.
using Line = std::uint64_t;
inline constexpr int kFileShift = 48;
std::string line_text(Line line);  // "line 7", "line 7 of file 2"

inline constexpr std::size_t kLineBytesMax = std::size_t{64} << 20;

struct StartFact {
  std::string job_text;
  std::map<std::string, std::string> job;  // its keys: "model.width" -> "128"
  std::string fingerprint, data;           // data: identity, hex
  std::uint64_t steps = 0, seed = 0;
  std::uint32_t micro_batches = 0, sequences = 0;
  std::uint64_t samples = 0;        // 0: not told
  std::uint32_t chunk_samples = 0;  // of lanes; 0: there are none
  std::uint64_t tokens_per_step = 0;
  Version from = 0;                // above 0: the run went on from a checkpoint
  std::string address;             // of its coordinators; empty: not told
  std::uint64_t monotonic_ns = 0;  // the run's begin by its machine's clock
  std::string coordinator;         // the one that wrote this; empty: of the whole run
  Line line = 0;

  // Returns whether the job deals places whose samples its script draws: which ones is not told.
  bool own_order() const {
    const auto it = job.find("model.own_order");
    return it != job.end() && it->second == "true";
  }
  // Returns whether a place's sample follows from the seed and the number of samples.
  bool tells_samples() const { return samples != 0 && !own_order(); }
  // Returns a whole number of the job; nothing if it is not there.
  std::optional<std::uint64_t> job_number(const std::string& key) const;
};

struct StepFact {
  Version version = 0;
  EpochId epoch;  // in which the reporting worker passed or learned it
  double loss = 0, norm = 0;
  std::optional<double> rate;  // as far as it was told
  std::uint64_t tokens = 0;
  bool skipped = false;
  std::uint64_t scale = 0;  // of the loss; 0: not scaled
  std::string ledger_hash;
  std::string digest;  // of `version`; empty: none
  std::vector<double> metrics;
  Line line = 0;
};

struct EvaluationFact {
  Version version = 0;
  double loss = 0;
  std::vector<double> metrics;
  Line line = 0;
};

struct LedgerFact {
  Version version = 0;
  EpochId epoch;                                           // in which it passed
  std::vector<std::pair<MicroBatch, std::uint64_t>> rows;  // micro-batch, worker
  Line line = 0;
};

struct EpochFact {
  EpochId id, predecessor;
  std::vector<std::uint64_t> members;  // counters of their incarnations
  std::optional<Version> base;         // none: a prepared plan
  bool begins_at_vote = false;
  Line line = 0;
};

struct ExposureFact {
  EpochId epoch;
  std::uint64_t segments = 0, copies_min = 0, wanted = 0;
};

struct RestartFact {
  Version version = 0;  // the steps from here on are done again
  EpochId lost;         // in epochs after this one
  Line line = 0;
  bool by_people = false;  // they ended the run in order and went on from here
};

struct EndedFact {  // in order, before the job was done
  std::string reason;
  Version version = 0;
  std::optional<Version> checkpoint;
  Line line = 0;
};

struct TaintFact {
  std::uint64_t worker = 0;
  std::string name;
  Version first = 0;
  std::optional<Version> last;  // when it was told
  std::string reason;
  Line line = 0;
};

struct MismatchFact {
  Version version = 0;
  MicroBatch micro_batch = 0;
  std::uint64_t worker = 0, by = 0;    // the one that computed it, and the one that repeated it
  std::optional<std::uint64_t> wrong;  // none: one of the two
  Line line = 0;
};

struct DoneFact {
  Version version = 0;
  std::string digest;
  double loss = 0;
  Line line = 0;
};

struct FailedFact {
  std::uint64_t code = 0;
  std::string reason;
};

struct History {
  StartFact start;
  std::vector<StepFact> steps;  // all lists in the order of the file
  std::vector<LedgerFact> ledgers;
  std::vector<EvaluationFact> evaluations;
  std::vector<EpochFact> epochs;
  std::vector<ExposureFact> exposures;
  std::vector<RestartFact> restarts;
  std::vector<TaintFact> taints;
  std::vector<MismatchFact> mismatches;
  std::vector<DoneFact> done;
  std::vector<DoneFact>
      earlier_ends;  // `done` of runs that a later run went on from, with more steps
  std::optional<EndedFact> ended;
  std::optional<FailedFact> failed;
  std::optional<Line> after_done;  // first line after `done` of another kind than a step's
  std::map<std::uint64_t, std::string> names;    // of workers
  std::set<std::uint64_t> lost, left_out, left;  // workers
  std::vector<std::string> other_scripts;        // warnings that the script was another one before
  std::set<std::uint64_t> led_terms;             // of which the leader's file is here
  std::vector<std::string> other_arithmetic;     // files of one run that name two
  std::vector<std::string> gaps;                 // lines that are known to be missing, and why
  Line lines = 0;
};

// Returns "worker 2 (worker-1)", or without a name that no event tells.
std::string worker_text(const History& history, std::uint64_t id);

// Returns "3 workers, 1 lost, 0 left out, 1 left".
std::string workers_text(const History& history);

// Says why the run may have what this history lacks; empty: it may not.
std::string why_incomplete(const History& history);

// Joins what several files tell of one run: equal facts once, different ones as often
// as told. Files of runs that went on one after the other from checkpoints, by where
// they begin and in the order given, are one run as well: the epochs and workers of a
// later run come after those of the one before. kBadInput: they are of different jobs.
Result<History> merge(std::vector<History> histories);

class HistoryReader {
 public:
  // Takes one line, without its end. Errors: kBadInput  the line, and what was expected in it.
  Result<> take(std::string_view line);
  // `cut`: text without an end follows the last line. kBadInput: there was no `start`.
  Result<History> finish(bool cut = false) &&;

 private:
  History history_;
};

}  // namespace starling::audit
