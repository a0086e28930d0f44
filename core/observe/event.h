#pragma once
// What happens in a run, a struct for each kind: coordinators tell them, the writer makes each a
// line of events.jsonl, the reader makes them of lines, and people are shown some. The fields are
// those of the lines and mean what core/observe/events.h says of them; what a line has besides, its
// time, belongs to the line.
//
// Values only, so that elastic/ may tell them. To add a kind: a struct and its place in Event here,
// its fields in event_fields.h, and a sentence in events.h; whatever visits events does not compile
// until it says what it does with the new kind.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/base/machine.h"
#include "core/base/step_record.h"
#include "core/wire/messages.h"

namespace starling {

enum class WorkerChange : std::uint8_t { kJoined = 1, kLeft, kLost, kFenced };

namespace event {

struct Started {
  static constexpr const char* kKind = "start";
  std::string job;  // canonical text
  std::uint64_t job_hash = 0;
  std::string fingerprint;
  std::string name;
  std::uint64_t steps = 0;
  std::uint32_t micro_batches = 0;
  std::uint32_t sequences = 0;
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;
  std::uint32_t chunk_samples = 0;  // of lanes (core/data/lanes.h); 0: there are none
  Version from = 0;
  std::uint64_t tokens_per_step = 0;
  Digest data{};
  std::int64_t monotonic_ns = 0;
  std::string address;
  std::string keys;
  std::string coordinator;
  bool operator==(const Started&) const = default;
};

struct Continued {
  static constexpr const char* kKind = "continued";
  std::string coordinator;
  std::int64_t monotonic_ns = 0;
  std::uint64_t cut_bytes = 0;
  bool operator==(const Continued&) const = default;
};

struct Dropped {
  static constexpr const char* kKind = "dropped";
  std::uint64_t lines = 0;
  std::string why;
  bool operator==(const Dropped&) const = default;
};

struct WorkerChanged {
  static constexpr const char* kKind = "worker";
  std::uint64_t id = 0;
  WorkerChange what = WorkerChange::kJoined;
  std::string name;
  std::uint64_t pid = 0;
  std::optional<WorkPhase> phase{};
  std::string reason{};  // empty: none
  Machine machine{};     // of one that joined
  bool operator==(const WorkerChanged&) const = default;
};

struct Preparing {
  static constexpr const char* kKind = "preparing";
  std::string name;
  std::uint64_t pid = 0;
  bool operator==(const Preparing&) const = default;
};

struct EpochMember {
  std::uint64_t id = 0;
  std::string name;
  bool joiner = false;
  bool draining = false;
  WorkerRole role = WorkerRole::kBoth;
  bool operator==(const EpochMember&) const = default;
};

struct EpochFormed {
  static constexpr const char* kKind = "epoch";
  EpochId id;
  PlanKind kind = PlanKind::kFresh;
  EpochId predecessor;
  std::vector<EpochMember> members;  // index = rank
  std::optional<Version> base;
  std::optional<BeginAt> begin;
  std::string cause;
  std::vector<std::vector<SegmentRange>> holders;  // per rank
  std::vector<std::uint32_t> owned;                // per rank
  std::uint64_t moves = 0;
  std::optional<double> detect_ms{};  // first notice anywhere to Freeze sent
  std::optional<double> form_ms{};    // to plan committed
  std::optional<double> resume_ms{};  // to the next pass
  std::optional<Pause> pause{};
  bool operator==(const EpochFormed&) const = default;
};

struct TransportChosen {
  static constexpr const char* kKind = "path";
  EpochId epoch;
  bool on_device = false;
  std::string why;
  bool operator==(const TransportChosen&) const = default;
};

struct StepPassed {
  static constexpr const char* kKind = "step";
  StepRecord record;
  EpochId epoch;
  std::uint32_t world = 0;
  double ms = 0;
  bool on_device = false;
  std::optional<double> rate{};  // learning rate; set by the process that tells it
  double peak_rate = 0;          // Progress'; in no line
  bool operator==(const StepPassed&) const = default;
};

struct Evaluated {
  static constexpr const char* kKind = "evaluation";
  Version version = 0;
  double loss = 0;
  std::vector<double> metrics{};
  bool operator==(const Evaluated&) const = default;
};

struct LedgerPassed {
  static constexpr const char* kKind = "ledger";
  Version version = 0;
  EpochId epoch;
  std::vector<std::pair<MicroBatch, std::uint64_t>> workers;  // in the order of micro-batches
  bool operator==(const LedgerPassed&) const = default;
};

struct LeaderElected {
  static constexpr const char* kKind = "leader";
  std::uint64_t term = 0;
  std::uint32_t coordinator = 0;
  std::uint64_t pid = 0;  // set by the process that tells it
  std::uint64_t election_ms = 0;
  bool operator==(const LeaderElected&) const = default;
};

struct Exposed {
  static constexpr const char* kKind = "exposure";
  EpochId epoch;
  std::uint32_t segments = 0;
  std::uint32_t copies_min = 0;
  std::uint32_t wanted = 0;
  bool operator==(const Exposed&) const = default;
};

struct CheckpointWritten {
  static constexpr const char* kKind = "checkpoint";
  Version version = 0;
  std::string path;  // set by the process that tells it
  bool operator==(const CheckpointWritten&) const = default;
};

struct Restarted {
  static constexpr const char* kKind = "restart";
  Version version = 0;
  EpochId lost;
  std::string cause;
  bool operator==(const Restarted&) const = default;
};

struct NoticeGiven {
  static constexpr const char* kKind = "notice";
  std::uint64_t id = 0;
  std::string name;
  std::string source;
  bool leave = false;
  std::optional<double> seconds{};
  std::string text{};
  bool operator==(const NoticeGiven&) const = default;
};

// The group of coordinators has other voters than before.
struct CoordinatorsChanged {
  static constexpr const char* kKind = "coordinators";
  std::uint64_t index = 0;            // of the log: of two such events the higher one counts
  std::vector<std::uint32_t> places;  // of all voters, ascending
  bool operator==(const CoordinatorsChanged&) const = default;
};

// An admin has steered the run.
struct AdminActed {
  static constexpr const char* kKind = "admin";
  std::string by;                     // name of the admin's key
  std::string action;                 // to_string(AdminAction)
  std::string worker;                 // empty: all
  std::optional<double> peak_rate{};  // of "rate"
  bool operator==(const AdminActed&) const = default;
};

struct Tainted {
  static constexpr const char* kKind = "tainted";
  std::uint64_t id = 0;
  std::string name;
  Version first = 0;
  std::optional<Version> last{};
  std::string reason;
  bool operator==(const Tainted&) const = default;
};

struct Mismatch {
  static constexpr const char* kKind = "mismatch";
  Version version = 0;
  MicroBatch micro_batch = 0;
  std::uint64_t worker = 0;
  std::uint64_t by = 0;
  std::optional<std::uint64_t> wrong{};
  bool operator==(const Mismatch&) const = default;
};

struct Warning {
  static constexpr const char* kKind = "warning";
  std::string text;
  bool operator==(const Warning&) const = default;
};

struct Done {
  static constexpr const char* kKind = "done";
  Version version = 0;
  Digest digest{};
  double loss = 0;
  bool operator==(const Done&) const = default;
};

// The run was ended in order before the job was done; another one may go on.
struct Ended {
  static constexpr const char* kKind = "ended";
  int signal = 0;
  Version version = 0;
  std::optional<Version> checkpoint{};
  std::string reason;
  bool operator==(const Ended&) const = default;
};

struct Failed {
  static constexpr const char* kKind = "failed";
  int code = 0;
  std::string reason;
  bool operator==(const Failed&) const = default;
};

}  // namespace event

using Event =
    std::variant<event::Started, event::Continued, event::Dropped, event::WorkerChanged,
                 event::EpochFormed, event::TransportChosen, event::StepPassed, event::LedgerPassed,
                 event::LeaderElected, event::Exposed, event::CheckpointWritten, event::Restarted,
                 event::NoticeGiven, event::Tainted, event::Mismatch, event::Warning, event::Done,
                 event::Ended, event::Failed, event::Evaluated, event::Preparing, event::AdminActed,
                 event::CoordinatorsChanged>;

// The value of the event's kKind.
const char* kind_of(const Event& event);

namespace event {

// The event that a plan gives of its epoch; no time is known yet.
EpochFormed formed(const Plan& plan);
StepPassed step_of(const Progress& progress);
LedgerPassed ledger_of(const Progress& progress);
// What `values`, loss and metrics of a version, say; nothing if they are empty.
std::optional<Evaluated> evaluated(Version version, const std::vector<double>& values);
NoticeGiven given(const Incarnation& who, const std::string& name, const Notice& notice);

}  // namespace event

// The words of the lines.
const char* to_string(WorkerChange what);
const char* to_string(PlanKind kind);
const char* to_string(BeginAt begin);
const char* to_string(WorkerRole role);
const char* to_string(WorkPhase phase);
const char* to_string(AdminAction action);
// Names of the coordinators of these places: "coordinator-0, coordinator-2".
std::string names_of_coordinators(const std::vector<std::uint32_t>& places);

}  // namespace starling
