#pragma once
// The messages of the control plane as plain structs: what workers, guards and coordinators say to
// each other, what Raft stores, and what a plan is. The schema files beside this one say how they
// travel; core/wire/codec.h turns one into the other.
// Long because all messages of the control plane, and what Raft orders, are here, each a plain struct.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/kinds.h"
#include "core/base/machine.h"
#include "core/base/step_record.h"
#include "core/job/layout.h"
#include "core/job/rate_change.h"
#include "core/wire/frame.h"

namespace starling {

// ---- Steps ------------------------------------------------------------------------------------

// LedgerRow is one row of a step's ledger: the worker that computed micro-batch m, and the result.
struct LedgerRow {
  MicroBatch micro_batch = 0;
  std::uint64_t worker = 0;  // counter of the worker's incarnation
  double loss = 0;           // mean over the micro-batch's tokens (nats)
  std::uint64_t tokens = 0;
  bool finite = true;
  std::vector<double> metrics{};  // what the model measured beside the loss, in the job's order
  // Hash of the added integers and of all that the row says but the worker: the same for every worker
  // that computes the micro-batch from the same parameters.
  std::uint64_t contribution = 0;
  // Of each held-out batch that comes with this micro-batch, in a step that evaluates: its loss and
  // metrics. They travel between members alone.
  std::vector<double> held_out{};
  bool operator==(const LedgerRow&) const = default;
};

// An exact sum of doubles as its wide integer's words (core/base/exact_sum.h); empty = zero.
using ExactWords = std::vector<std::uint64_t>;

// A micro-batch whose recomputed contribution differs from its ledger row; then computed once more.
struct Difference {
  Version version = 0;
  MicroBatch micro_batch = 0;
  std::uint64_t worker = 0;  // counter of the incarnation whose row it is
  std::uint64_t row = 0;     // LedgerRow::contribution
  std::uint64_t first = 0, second = 0;
  std::uint64_t by = 0;  // counter of the incarnation that computed it again
  bool operator==(const Difference&) const = default;
};

// A Vote is one worker's vote for one step. `record` is set (version != kNoVersion) only by a
// member that has passed this vote in an earlier epoch already.
struct Vote {
  Version version = 0;
  ExactWords partial_norm;  // exact sum of squares of the segments it owns
  Digest digest_part{};     // of the segments it owns, at label `version`; zeros: none is due
  std::uint64_t micro_batch_ns = 0;  // what one takes here; 0: not known, or to be measured
  EpochId ready_for;  // z is committed here, my connections of z stand, joiners are ready
  StepRecord record;
  bool writing = false;           // a checkpoint of an earlier version
  bool wants_checkpoint = false;  // of the version that this step makes: it was asked for one
  std::uint32_t ready_attempt =
      0;  // attempt whose device transport is ready here; 0: none is (R17)
  // The differences that this member has found in this step. Each receiver reports them to the leader,
  // so that no loss of this member hides them.
  std::vector<Difference> differences{};
};

// ---- Plans ------------------------------------------------------------------------------------

// WorkerRole says what a worker does for the group besides voting. It is the worker's for its life.
enum class WorkerRole : std::uint8_t {
  kBoth = 1,
  kCompute = 2,  // micro-batches; holds no state
  kHold = 3,     // state; computes no micro-batch
};
inline bool computes(WorkerRole role) {
  return role != WorkerRole::kHold;
}
inline bool holds(WorkerRole role) {
  return role != WorkerRole::kCompute;
}

enum class PlanKind : std::uint8_t { kFresh = 1, kForced = 2, kPrepared = 3 };
enum class BeginAt : std::uint8_t { kVote = 1, kGather = 2, kCompute = 3 };

struct Member {
  Incarnation who;
  std::string name;  // of its key
  std::string host;  // of its bulk listener, as others dial it
  std::uint16_t port = 0;
  std::string failure_domain;  // empty: none stated
  bool joiner = false;         // has no state yet when the epoch begins
  bool draining = false;       // announced its leave: keeps nothing longer than it must
  WorkerRole role = WorkerRole::kBoth;
};

// A Move: in step (first step of the epoch + step_offset) the source sends its state of these
// segments to the target, which is a holder from that step on (R14).
struct Move {
  SegmentRange segments;
  Rank source = 0;
  Rank target = 0;
  std::uint32_t step_offset = 0;
  // Returns the step of this move in an epoch whose first step is `first`.
  Version step(Version first) const { return first + step_offset; }
  bool operator==(const Move&) const = default;
};

struct Plan {
  EpochId id;
  EpochId predecessor;
  PlanKind kind = PlanKind::kFresh;
  std::vector<Member> members;  // index = rank
  EpochKey key{};
  std::vector<std::vector<Rank>> holders;  // per segment, owner first
  std::vector<Move> moves;
  // Fresh and forced plans only:
  Version base = 0;
  BeginAt begin = BeginAt::kCompute;
  // Plans of any kind:
  std::vector<Rank> shares;  // micro-batch of the epoch's first step -> rank; empty: equal ones
  std::string cause;         // for the event
  // Fresh and forced only: the epochs that its members had last entered when they reported. They
  // promised to enter nothing else below `id` (R9), so of all epochs before this one, these alone
  // can still be named in a report.
  std::vector<EpochId> entered{};
  // The first step that is in doubt because of a worker that is gone, as it had not read all its
  // data, had others, or computed wrongly; kNoVersion: there is none. Later plans keep it.
  Version doubted_from = kNoVersion;
  // In the order in which they were made; later plans keep them. A fresh or forced plan may add one, whose first step
  // is not below `base` (R19).
  std::vector<RateChange> rates{};
};

// ---- Checkpoints ------------------------------------------------------------------------------

struct SegmentDigest {
  SegmentId segment = 0;
  Digest digest{};  // its part of the digest of the version
  bool operator==(const SegmentDigest&) const = default;
};

// A Shard is one file of a checkpoint, beside the others in the folder of its version.
struct Shard {
  std::string file;
  std::uint64_t bytes = 0;
  std::vector<SegmentDigest> segments;
  bool operator==(const Shard&) const = default;
};

// A complete checkpoint: its manifest lies in the folder of its version
// (core/formats/checkpoint.h).
struct Checkpoint {
  Version version = 0;
  Digest digest{};       // of that version
  Digest fingerprint{};  // of the workers that computed it
  std::string fingerprint_text;
  Digest data{};  // of all data that these workers had read; {}: they had not read them to the end
  // The first step that is in doubt, as a worker had not read all its data, had others, or computed
  // wrongly; kNoVersion: there is none.
  Version doubted_from = kNoVersion;
  std::vector<RateChange> rates{};  // Plan's
  bool operator==(const Checkpoint&) const = default;
};

// ---- Worker, guard -> coordinators ------------------------------------------------------------

struct Join {
  Incarnation who;  // counter 0
  std::string name;
  std::string host;
  std::uint16_t port = 0;
  std::string failure_domain;
  std::uint64_t job_hash = 0;  // of the job file's meaning
  Digest fingerprint{};
  std::string fingerprint_text;  // ISA, library versions: for the message when it differs
  std::uint64_t pid = 0;         // of its process on its host, for people
  Digest data{};  // of all its data, where they were read before it joined; zeros: not yet
  WorkerRole role = WorkerRole::kBoth;
  Machine machine;
};
// A worker that does not know the job yet says no fingerprint; the answer is a Welcome with counter
// 0 and the job file, from any coordinator.
inline bool asks_for_job(const Join& join) {
  return join.fingerprint == Digest{};
}

// A worker's promise: I send and receive nothing more in the epoch I ran, and I enter no plan with
// an id below `promise` (R9).
struct Report {
  EpochId promise;
  EpochId entered;  // last epoch entered; none = {0,0}
  Version version = kNoVersion;
  bool pending = false;  // has voted for step `version`, still has its totals
  bool parameters_complete = false;
  std::vector<MicroBatch> share;  // of step `version`, as dealt
  std::vector<MicroBatch> done;   // of it, in its accumulators
  std::vector<bool> copies;  // per segment: state with label `version` (and its total, if pending)
  std::vector<Incarnation> broken;   // peers whose connections broke or did not stand in time
  std::uint64_t micro_batch_ns = 0;  // what a micro-batch takes here; 0: not known
  // The prepared epoch that the sender's last vote agreed to switch to; it began if that vote
  // passed anywhere. If the sender is not pending: the epoch that left it out. {0,0}: none.
  EpochId may_have_begun;
  LinkFault fault = LinkFault::kEnded;  // how the connections with `broken` ended
};

// Sent every tenth of a lease, at most 100 ms apart, by the thread that obeys the protocol. Threads
// that compute or read may stand still meanwhile, so it says what others wait for at its sender.
struct Heartbeat {
  EpochId entered;
  Version version = kNoVersion;
  EpochId ready_for;                 // prepared plan whose connections stand
  std::uint64_t micro_batch_ns = 0;  // what a micro-batch takes here; 0: not known
  std::uint32_t share_left = 0;      // micro-batches of its share that can be computed, not done
  std::uint32_t load_left = 0;       // segments that it has still to load from a checkpoint
  std::uint32_t orders_left = 0;  // work on its state and with the others that it has still to do
  std::uint64_t progress = 0;     // grows with everything that its threads have done
  Digest data{};                  // of all data files as they are read here; zeros: not known yet
  // From rank 0 of the epoch: the way of its bytes when votes name it, and why. Empty: not known.
  bool on_device = false;
  std::string transport_why;
  // Members of `entered` whose sums, parameters, rows or votes it waits for, while it has nothing
  // to do itself: the lowest ranks, at most limits::kMissed. Empty: it waits for none.
  std::vector<Rank> missed;
  // Differences found in this life: the newest, at most limits::kDifferences. Sent with every
  // heartbeat, so that a new leader learns of them too.
  std::vector<Difference> differences{};
  // How much of their time its compute threads wait for data, in percent; 0: less than half.
  std::uint8_t data_wait_percent = 0;
};

// Pause says where the time from stopping to the first pass of a forced epoch went at one member;
// each part begins where the one before ends. Milliseconds.
struct Pause {
  double report_ms = 0;   // stopped; to the report sent
  double plan_ms = 0;     // to the plan received
  double connect_ms = 0;  // to all connections standing
  double compute_ms = 0;  // to the own share done
  double reduce_ms = 0;   // to all totals accepted
  double vote_ms = 0;     // to the vote passed
  bool operator==(const Pause&) const = default;
};

// WorkPhase is what a worker is doing. Its guard tells the last one with its death.
enum class WorkPhase : std::uint8_t {
  kNone,
  kChange,
  kCompute,
  kReduce,
  kVote,
  kApply,
  kGather,
  kEnd
};

struct Progress {
  EpochId epoch;
  StepRecord record;
  std::uint32_t world = 0;
  std::vector<LedgerRow> ledger;  // empty unless this worker has all M rows
  double step_ms = 0;
  std::optional<Pause> pause{};  // with the first pass of a forced epoch
  bool on_device = false;        // its bytes went over the device transport
  double peak_rate = 0;          // of this step, where an admin has changed it; 0: the job's
};

struct Leave {  // announced leave
  std::uint64_t notice_ms = 0;
};

// What a signal, a cloud or an application has told a worker about the end of its machine.
struct Notice {
  std::string source;           // SIGTERM, aws, gcp, azure, ..
  std::string text;             // what it said, for people
  std::uint64_t notice_ms = 0;  // from when it was given until the machine is gone; of a hint 0
  bool leave = false;           // false: a hint, nothing follows from it
  bool operator==(const Notice&) const = default;
};

struct Death {  // the word of a guard, or the last one of a joiner: certain
  Incarnation who;
  WorkPhase phase = WorkPhase::kNone;
  std::string reason;          // why it ended itself, if it did
  std::uint8_t exit_code = 0;  // with which it ended itself; 0: it did not, or has not said
};

struct Finished {
  EpochId epoch;
  Version version = 0;
  Digest digest_part{};              // over the segments that it owns
  Digest parameters_part{};          // of the working parameters of these segments
  std::vector<double> evaluation{};  // loss and metrics of that version, of a member that has them
};

// Sent by an owner when its part of the checkpoint of `version` is on disk, or cannot be written.
struct ShardWritten {
  Version version = 0;
  StepRecord record;  // of step version-1
  Shard shard;
  std::string error;  // not empty: why there is no shard
};

// Sent by a member of a fresh plan that cannot build the state from the checkpoint of `version`.
struct Unloadable {
  Version version = 0;
  std::string reason;
};

// ---- Coordinator -> worker --------------------------------------------------------------------

struct Welcome {         // answer to Join, once committed
  Incarnation who;       // with its counter
  std::string job_text;  // the job file, normalised, if the join asked for it; else empty
};

struct Refused {  // the join cannot be taken: one clear line
  std::string reason;
};

struct Freeze {  // stop, and report with this promise
  EpochId asked;
};

struct Committed {  // a committed plan (R16)
  Plan plan;
};

struct Fenced {        // you were left out of a plan: start a new life
  std::string reason;  // why, for people; empty: the group had not heard of you, or knows no more
};
struct Released {};  // your announced leave is complete: exit
struct Ended {       // the job is over, or cannot go on
  std::uint8_t exit_code = 0;
  std::string reason;
  Digest digest{};
  double loss = 0;
  Digest parameters{};  // of the working parameters of the last version: the trained model
};

// Write a checkpoint of the next version above this one that all vote for.
struct CheckpointAsked {
  Version above = 0;
};

// The answer to a Progress: its record and rows are passed on to observers.
struct Noted {
  Version version = 0;
};

// A coordinator's keep-alive: the answer when it has nothing else to say. It names the leader as
// far as the coordinator knows it; term 0: it does not.
struct LeaderHint {
  std::uint32_t coordinator = 0;
  std::uint64_t term = 0;
  std::string note;  // what a person at this worker should know; empty: nothing
};

// A Seat is the address at which the coordinator with this place in the group is reached.
struct Seat {
  std::uint32_t place = 0;  // below limits::kSeats
  std::string address;      // "tcp://host:port"
  bool operator==(const Seat&) const = default;
};

// Where coordinators are reached now; a place that is not named stays where it is.
struct Seats {
  std::vector<Seat> seats;
  bool operator==(const Seats&) const = default;
};

// What a coordinator that is to take part, or a person with a coordinator's key, asks of the group. Repeated until the
// answer is kDone or kRefused; asking again changes nothing more.
struct ChangeAsked {
  std::optional<std::uint32_t> add;  // the sender's own place
  std::string address;               // where others reach it, "tcp://host:port"
  Nonce life;                        // of its log
  std::optional<std::uint32_t> remove;
  std::uint64_t job_hash = 0;  // of its job file, with `add`
};

enum class ChangeState : std::uint8_t {
  kUnderWay = 1,
  kMayBegin,  // the place belongs to this life, which takes part in Raft from now on
  kDone,
  kRefused,
};

// The leader's answer.
struct ChangeAnswered {
  ChangeState state = ChangeState::kUnderWay;
  std::string reason;  // of kRefused
};

// What a person with an admin's key asks of the leader (docs/steer.md). Repeated until the answer is kDone or kRefused.
enum class AdminAction : std::uint8_t {
  kDrain = 1,   // a worker leaves as if it had notice without an end
  kEvict,       // a worker is left out at once
  kCheckpoint,  // one of a version from now on
  kStop,        // the run ends in order
  kRate,        // another peak rate from a step on
};
struct AdminAsked {
  AdminAction action = AdminAction::kDrain;
  std::string worker;      // name, of kDrain and kEvict
  std::uint64_t mark = 0;  // of the last answer: what the action is about; 0: the first time
  double peak_rate = 0;    // of kRate
};

enum class AdminState : std::uint8_t { kUnderWay = 1, kDone, kRefused };
struct AdminAnswered {
  AdminAction action = AdminAction::kDrain;
  AdminState state = AdminState::kUnderWay;
  std::uint64_t mark = 0;
  std::string text;  // for the person; empty: nothing
};

// ---- The door ---------------------------------------------------------------------------------

// What the owner of a key that a coordinator does not know may say, and nothing else: "let my key in, for this token of
// an OIDC provider says who I am" (docs/identity.md).
struct Enrol {
  std::string token;  // a JSON Web Token; at most limits::kTokenBytes
};

// The answer. One of `name` and `refusal` is empty.
struct Enrolled {
  std::string name;     // of the key, which is let in
  std::string refusal;  // why not, one line for people
  bool again = false;   // of a refusal: it says nothing of the token, which may be shown again
};

// ---- Raft -------------------------------------------------------------------------------------

// RaftMembers is the group of coordinators from an entry of the log on.
struct RaftMembers {
  std::vector<std::uint32_t> voters;     // places, ascending; at least one
  std::optional<std::uint32_t> learner;  // is sent the log, and votes once it has it
  std::optional<std::uint32_t> leaving;  // a voter; is taken out when there is no learner
  std::uint32_t next = 0;                // no place from here on was ever in the group
  bool operator==(const RaftMembers&) const = default;
};

struct RaftEntry {
  std::uint64_t index = 0;
  std::uint64_t term = 0;
  Bytes data;  // an encoded Entry (below); empty = the no-op that begins a term
  std::optional<RaftMembers> members;  // the entry changes the group, and has no data
  bool operator==(const RaftEntry&) const = default;
};

enum class RaftKind : std::uint8_t {
  kPreVote = 1,
  kPreVoteReply,
  kVote,
  kVoteReply,
  kAppend,
  kAppendReply,
  kSnapshot,
  kSnapshotReply,
  kRecall,
  kRecallReply,
  kElect,
  kRemoved,
};

struct RaftMessage {
  RaftKind kind = RaftKind::kAppend;
  std::uint32_t from = 0;  // coordinator's place in the group, 0..n-1
  std::uint32_t to = 0;
  std::uint64_t term = 0;
  // elastic/raft/raft.h says what each field means in each kind.
  std::uint64_t last_index = 0;
  std::uint64_t last_term = 0;
  std::uint64_t commit = 0;
  bool granted = false;
  std::uint64_t match = 0;
  std::uint64_t round = 0;
  std::vector<RaftEntry> entries;
};

// ---- What Raft orders -------------------------------------------------------------------------

struct JobStarted {
  JobId job{};
  std::uint64_t job_hash = 0;
  std::vector<Checkpoint> checkpoints;  // it goes on from the last; oldest first
};
struct Joined {
  Join join;  // Group::apply sets who.counter
};
struct LeaveAnnounced {
  Incarnation who;
};
struct Lost {
  Incarnation who;
  bool certain = false;
};
struct JobEnded {
  std::uint8_t exit_code = 0;
  std::string reason;
  Digest digest{};
  double loss = 0;
  Version version = 0;
  Digest parameters{};  // Ended's
};

struct Published {  // this checkpoint is complete; those before `oldest` are removed, but `spared`
  Checkpoint checkpoint;
  Version oldest = 0;
  Version spared = kNoVersion;
};
struct Damaged {  // this checkpoint cannot be read
  Version version = 0;
  std::string reason;
};
// The last plan is over and some state of it is gone: the next plan is fresh, from the checkpoint
// of `version`. Each former member starts a new life.
struct Restarted {
  EpochId lost;  // id of that plan; void if it is not the last valid one
  Version version = 0;
  std::string cause;
  // No step from this version on is known to anybody but lives that are over.
  Version reached = 0;
};

// A place was given to the coordinator whose log has this life, for good; it is reached at this address.
struct CoordinatorAt {
  std::uint32_t place = 0;  // below limits::kSeats
  std::string address;      // "tcp://host:port"
  Nonce life;
  bool operator==(const CoordinatorAt&) const = default;
};

using Entry = std::variant<JobStarted, Joined, LeaveAnnounced, Lost, Plan, JobEnded, Published,
                           Damaged, Restarted, CoordinatorAt>;

// ---- Envelope ---------------------------------------------------------------------------------

using Message =
    std::variant<Join, Report, Heartbeat, Progress, Leave, Death, Finished, Welcome, Refused,
                 Freeze, Committed, Fenced, Released, Ended, LeaderHint, RaftMessage, Notice,
                 ShardWritten, Unloadable, Noted, CheckpointAsked, Seats, ChangeAsked,
                 ChangeAnswered, AdminAsked, AdminAnswered, Enrol, Enrolled>;

// Every kind travels one way: a receiver names each kind that comes its way, handled or not, and
// only such a sender may say it (P8).
template <class Kind>
concept SaidByWorkers = OneOf<Kind, Join, Report, Heartbeat, Progress, Leave, Death, Finished,
                              Notice, ShardWritten, Unloadable, Enrol>;
template <class Kind>
concept SaidByCoordinators =
    OneOf<Kind, Welcome, Refused, Freeze, Committed, Fenced, Released, Ended, LeaderHint, Noted,
          CheckpointAsked, Seats, ChangeAnswered, AdminAnswered, Enrolled>;
template <class Kind>
concept SaidAmongCoordinators = OneOf<Kind, RaftMessage, ChangeAsked>;
template <class Kind>
concept SaidByAdmins = OneOf<Kind, AdminAsked>;

template <class Variant>
struct OneWay;
template <class... Kinds>
struct OneWay<std::variant<Kinds...>>
    : std::bool_constant<((SaidByWorkers<Kinds> + SaidByCoordinators<Kinds> +
                               SaidAmongCoordinators<Kinds> + SaidByAdmins<Kinds> ==
                           1) &&
                          ...)> {};
static_assert(OneWay<Message>::value, "a new message: who says it to whom?");

// Every message names the job, its sender and its receiver; a receiver drops what is not for it.
struct Envelope {
  JobId job{};
  Incarnation from;
  Incarnation to;  // nonce 0: not known yet
  Message body;
};

}  // namespace starling
