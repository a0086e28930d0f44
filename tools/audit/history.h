#pragma once
// What events.jsonl says of a run, as facts: the lines of which the promises speak, in order.
//
// Knows the format (core/observe/events.h) and reads it anew on purpose: it shares no code with the
// writer, nor with the reader that all others use (core/observe/event_reader.h), so that an error
// there is not repeated here. Pure: lines in, facts or the first wrong line out. Memory: some
// hundred bytes for a step, 16 for each row of its ledger, whatever the length of the lines.
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

// Of a file, from 1; of histories that were merged with the number of the file, from 0, above
// kFileShift.
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
  std::uint64_t samples = 0;  // 0: not told
  std::uint64_t tokens_per_step = 0;
  Version from = 0;                // above 0: it went on from a checkpoint
  std::string address;             // of its coordinators; empty: not told
  std::uint64_t monotonic_ns = 0;  // when it began, by its machine's clock
  std::string coordinator;         // whose view it is; empty: of the whole run
  Line line = 0;

  // A whole number of the job; nothing if it is not there.
  std::optional<std::uint64_t> job_number(const std::string& key) const;
};

struct StepFact {
  Version version = 0;
  EpochId epoch;  // in which who told of it passed or learned it
  double loss = 0, norm = 0;
  std::uint64_t tokens = 0;
  bool skipped = false;
  std::uint64_t scale = 0;  // of the loss; 0: not scaled
  std::string ledger_hash;
  std::string digest;  // of `version`; empty: none
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
  bool by_people = false;  // they ended the run in order and went on from this checkpoint
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
  std::uint64_t worker = 0, by = 0;    // who computed it, and who did so again
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
  std::optional<Line> after_done;  // first line of another kind than a step's after `done`
  std::map<std::uint64_t, std::string> names;    // of workers
  std::set<std::uint64_t> lost, left_out, left;  // workers
  std::vector<std::string> other_scripts;        // warnings that the script was another one before
  std::vector<std::string> other_arithmetic;     // files of one run that name two
  std::vector<std::string> gaps;                 // lines that are known to be missing, and why
  Line lines = 0;
};

// "worker 2 (worker-1)", or without a name that no event tells.
std::string worker_text(const History& history, std::uint64_t id);

// "3 workers, 1 lost, 0 left out, 1 left"
std::string workers_text(const History& history);

// Why what is not there need not be missing from the run; empty: it would be.
std::string why_incomplete(const History& history);

// What several files tell of one run, as of one: what all of them tell alike once, and what they
// tell differently as often. Files of runs that went on one after the other from checkpoints, by
// where they begin and in the order given, are one as well: the epochs and workers of a later run
// come after those of the one before. kBadInput: they are of different jobs.
Result<History> merge(std::vector<History> histories);

class HistoryReader {
 public:
  // One line, without its end. Errors: kBadInput  names the line and what was expected in it.
  Result<> take(std::string_view line);
  // `cut`: something follows the last line, with no end. kBadInput: there was no `start`.
  Result<History> finish(bool cut = false) &&;

 private:
  History history_;
};

}  // namespace starling::audit
