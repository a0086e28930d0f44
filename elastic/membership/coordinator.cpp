#include "elastic/membership/coordinator.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/exit.h"
#include "core/base/mac.h"
#include "core/wire/codec.h"
#include "elastic/membership/chronicle.h"

namespace starling::elastic {

using namespace coordinator_event;
using namespace coordinator_command;

namespace {
constexpr std::uint64_t kRecallTold_ms =
    5000;  // between two warnings that name silent coordinators
// A coordinator that knows that no member has a log answers for so long: others began after it.
constexpr std::uint64_t kNoLog_ms = 3000;
constexpr std::size_t kAskers = 256;  // remembered
// An election is shorter than this: a coordinator that knows no leader for so long warns.
constexpr std::uint64_t kNoLeader_ms = 10'000;
}  // namespace

Coordinator::Coordinator(CoordinatorConfig config, HardState hard_state, std::vector<RaftEntry> log,
                         RaftSnapshot snapshot)
    : config_(std::move(config)),
      raft_(config_.raft, std::move(hard_state), std::vector<RaftEntry>(log), snapshot),
      group_(config_.leader.bugs) {
  told_ = config_.told;
  was_whole_ = raft_.whole();
  told_voters_ = raft_.members().voters;
  // What is in the log may not be committed as far as this one knows, and it may need these to hear so.
  for (const RaftEntry& entry : log) {
    heard_to_ = entry.index;
    if (entry.data.empty()) continue;
    const auto decoded = decode_entry(entry.data);
    const auto* seat = decoded ? std::get_if<CoordinatorAt>(&decoded.value()) : nullptr;
    if (seat) heard_at_[seat->place] = seat->address;
  }
  if (!snapshot.data) return;
  auto state = decode_group(*snapshot.data);
  STARLING_CHECK_MSG(state.has_value(), state.error().text());
  group_.restore(std::move(state).value());
  restored_ = true;
}

Coordinator::~Coordinator() = default;

CoordinatorCommands Coordinator::on(const CoordinatorEvent& event) {
  if (failed_) return {};
  commands_.clear();
  if (refused_) return {};
  if (!std::exchange(dialled_, true) && !heard_at_.empty()) dial();
  if (std::exchange(restored_, false)) {
    if (of_other_job()) return std::exchange(commands_, {});
    dial();
    tell_restored({});
  }
  std::visit([this](const auto& e) { on_event(e); }, event);
  drain();
  review_recall();
  review_members();
  review_quorum();
  return std::exchange(commands_, {});
}

// A log belongs to one job: its entries, and the end above all, say nothing of any other. This is
// checked whenever the group may have learned its job, and before the log is used.
bool Coordinator::of_other_job() {
  const auto& job = group_.job();
  if (refused_ || !job || job->job_hash == config_.job.job_hash) return refused_;
  refused_ = true;
  leader_.reset();
  commands_.push_back(RefuseJob{job->job_hash, config_.job.job_hash});
  return true;
}

void Coordinator::on_event(const Tick& e) {
  now_ms_ = e.now_ms;
  raft_.tick(now_ms_);
  review_leadership();  // Raft may have stepped down
  if (leader_) take(leader_->on(leader_event::Tick{now_ms_}));
}

void Coordinator::on_event(const RaftArrived& e) {
  if (e.message.from == e.from) raft_.receive(e.message);
}

void Coordinator::on_event(const WorkerSaid& e) {
  // Events come only from messages of workers that are in the log, sent under the key of their
  // join.
  const auto* worker = group_.find(e.from);
  const bool known = worker && worker->join.name == e.name;
  const auto* notice = std::get_if<Notice>(&e.body);
  // The coordinator that hears a notice tells of it, whether it leads or not.
  if (notice && known) tell(event::given(e.from, e.name, *notice));
  // A worker must know the job before it can say what it computes; every coordinator knows the job.
  if (const auto* join = std::get_if<Join>(&e.body); join && asks_for_job(*join) && !group_.end()) {
    note_asker(e.from, e.name, *join);
    commands_.push_back(SendWorker{e.from, Welcome{e.from, config_.leader.job_text}});
    return;
  }
  const auto* progress = std::get_if<Progress>(&e.body);
  if (progress && known) told_ = std::max(told_, progress->record.version + 1);
  // The end may arrive before the last steps' reports: note those steps all the same.
  if (progress && known && group_.end()) note_step(e.from, *progress);
  if (leader_) return take(leader_->on(leader_event::Said{e.from, e.name, e.body}));
  if (const auto& end = group_.end()) {
    commands_.push_back(SendWorker{e.from, ended(*end)});
    return;
  }
  if (progress && known) return note_step(e.from, *progress);
  // The hint shows the worker that a coordinator lives, so it goes on during an election.
  commands_.push_back(SendWorker{e.from, LeaderHint{raft_.leader().value_or(0), raft_.term(), {}}});
}

// A worker asks all coordinators, again and again until one answers; the leader tells of it once.
void Coordinator::note_asker(const Incarnation& from, const std::string& name,
                             const Join& question) {
  if (!leader_ || std::find(askers_.begin(), askers_.end(), from.nonce) != askers_.end()) return;
  askers_.push_back(from.nonce);
  if (askers_.size() > kAskers) askers_.pop_front();
  tell(event::Preparing{name, question.pid});
}

void Coordinator::note_step(const Incarnation& from, const Progress& progress) {
  tell(event::step_of(progress));
  if (auto evaluated = event::evaluated(progress.record.version, progress.record.evaluation))
    tell(*std::move(evaluated));
  if (!progress.ledger.empty()) tell(event::ledger_of(progress));
  commands_.push_back(SendWorker{from, Noted{progress.record.version}});
}

void Coordinator::on_event(const Persisted&) {
  if (waiting_) finish_ready();
}

void Coordinator::on_event(const Stored& e) {
  if (leader_) take(leader_->on(leader_event::Stored{e.version, e.error}));
}

void Coordinator::on_event(const AskCheckpoint&) {
  checkpoint_asked_ = true;
  if (leader_) take(leader_->on(leader_event::AskCheckpoint{}));
}

void Coordinator::on_event(const EndRun& e) {
  end_asked_ = e;
  if (leader_) take(leader_->on(e));
}

void Coordinator::on_event(const Revoked& e) {
  if (leader_) take(leader_->on(e));
}

// Whether a change of the rate that was asked for before the end was made.
bool Coordinator::has_rate(const AdminAsked& asked) const {
  const auto& rates = group_.rates();
  return asked.action == AdminAction::kRate && asked.mark != 0 && rates.size() >= asked.mark &&
         rates[asked.mark - 1].peak_rate == asked.peak_rate;
}

// The others are silent: the admin asks all of them, again and again.
void Coordinator::on_event(const AdminArrived& e) {
  if (const Seats now = seats(); !now.seats.empty()) commands_.push_back(SendWorker{e.from, now});
  if (const auto& end = group_.end()) {
    const bool done = e.asked.action == AdminAction::kStop || has_rate(e.asked);
    commands_.push_back(SendWorker{
        e.from, AdminAnswered{e.asked.action, done ? AdminState::kDone : AdminState::kRefused,
                              e.asked.mark, "the run is over: " + end->reason}});
    return;
  }
  if (leader_) take(leader_->on(e));
}

void Coordinator::drain() {
  review_leadership();
  while (!waiting_ && !failed_ && !refused_ && raft_.has_ready()) {
    waiting_ = raft_.take_ready();
    if (waiting_->to_save()) {
      commands_.push_back(Persist{waiting_->hard_state, waiting_->snapshot, waiting_->append});
      return;
    }
    finish_ready();
  }
}

void Coordinator::finish_ready() {
  const Ready ready = std::move(*std::exchange(waiting_, std::nullopt));
  raft_.persisted();
  for (const RaftMessage& message : ready.messages) commands_.push_back(SendRaft{message});
  if (ready.restore && !restore(*ready.snapshot)) return;
  for (const RaftEntry& entry : ready.committed)
    if (!refused_) apply(entry);
  review_leadership();
  while (leader_ && !unproposed_.empty() && raft_.propose(unproposed_.front())) {
    unproposed_bytes_ -= unproposed_.front().size();
    unproposed_.pop_front();
  }
  compact_if_long();
}

// ---- Snapshots --------------------------------------------------------------------------------

void Coordinator::compact_if_long() {
  if (applied_ < config_.log_entries_max && applied_bytes_ < config_.log_bytes_max) return;
  applied_ = applied_bytes_ = 0;
  raft_.compact(encode_group(group_.state()));
}

// Returns false if the snapshot cannot be read: without it this coordinator knows no group.
bool Coordinator::restore(const RaftSnapshot& snapshot) {
  auto state = decode_group(*snapshot.data);
  if (!state) {
    failed_ = true;
    commands_.push_back(Fail{"as the leader's state of the group cannot be read by this version: " +
                             state.error().text()});
    return false;
  }
  std::vector<Checkpoint> known = group_.checkpoints();
  group_.restore(std::move(state).value());
  applied_ = applied_bytes_ = 0;
  if (of_other_job()) return false;
  for (const auto& [place, seat] : group_.seats()) heard_at_[place] = seat.address;
  dial();
  tell_restored(std::move(known));
  return true;
}

// Tells what the entries behind the snapshot would have told; observers drop what they know.
void Coordinator::tell_restored(std::vector<Checkpoint> known) {
  for (const Checkpoint& checkpoint : group_.checkpoints())
    if (std::find(known.begin(), known.end(), checkpoint) == known.end())
      tell_all(Published{checkpoint, 0});
  if (group_.restart()) tell_all(*group_.restart());
  if (group_.end()) tell_all(*group_.end());
}

// ---- A log that was lost ----------------------------------------------------------------------

void Coordinator::review_recall() {
  if (failed_ || now_ms_ == 0) return;
  const std::string self = "coordinator " + std::to_string(config_.raft.self);
  if (raft_.whole()) {
    if (!std::exchange(was_whole_, true)) warn(self + ": its log is repaired by the others");
    return;
  }
  was_whole_ = false;
  const std::uint32_t others = config_.raft.size - 1;
  const Recalled recalled = raft_.recalled();
  if (recalled.lost != others) no_log_ms_ = 0;
  if (recalled.lost == others && no_log_ms_ == 0) no_log_ms_ = now_ms_;
  if (no_log_ms_ != 0 && (others == 0 || now_ms_ - no_log_ms_ >= kNoLog_ms)) {
    failed_ = true;
    commands_.push_back(
        Fail{"as no coordinator of this group has a log; start each with --new if the "
             "group begins, or a new group from a checkpoint if their logs are lost"});
    return;
  }
  if (recalled.changed) {
    failed_ = true;
    commands_.push_back(
        Fail{"as its log is lost and the group of coordinators has changed since it began: nobody "
             "can say what it has promised; start one in another place with --add, and take this "
             "one out with --replace " +
             coordinator_name(config_.raft.self)});
    return;
  }
  if (recall_told_ms_ != 0 && now_ms_ - recall_told_ms_ < kRecallTold_ms) return;
  const bool first = recall_told_ms_ == 0;
  recall_told_ms_ = now_ms_;
  if (first)
    warn(self +
         ": its log is lost; it does not vote before the other coordinators have repaired it");
  else if (raft_.hard_state().lost)
    warn(self + ": its log is lost, and of the " + std::to_string(others) + " other coordinators " +
         std::to_string(recalled.whole) +
         " have said what it may have promised; it does not vote before all have");
  else
    warn(self +
         ": its log is not repaired yet, as no leader has sent it; it does not stand for election");
}

// ---- A majority that is away ------------------------------------------------------------------

void Coordinator::review_quorum() {
  if (failed_ || refused_ || now_ms_ == 0 || group_.end()) return;
  const std::string self = coordinator_name(config_.raft.self);
  if (raft_.leader()) {
    if (std::exchange(told_no_leader_, false)) warn(self + ": a leader is there again");
    no_leader_ms_ = 0;
    return;
  }
  if (no_leader_ms_ == 0) no_leader_ms_ = now_ms_;
  const std::size_t voters = raft_.members().voters.size();
  if (told_no_leader_ || now_ms_ - no_leader_ms_ < kNoLeader_ms || voters == 1) return;
  told_no_leader_ = true;
  warn(self + ": no leader for " + std::to_string(kNoLeader_ms / 1000) + " s, as " +
       std::to_string(voters / 2 + 1) + " of the " + std::to_string(voters) +
       " coordinators must reach each other; until then steps go on, and no worker can join, leave "
       "or be replaced, nor the job end");
}

void Coordinator::warn(std::string text) {
  tell(event::Warning{std::move(text)});
}

void Coordinator::apply(const RaftEntry& raft_entry) {
  ++applied_;
  applied_bytes_ += raft_entry.data.size();
  if (raft_entry.data.empty()) return;  // the no-op that begins a term
  auto entry = decode_entry(raft_entry.data);
  if (!entry) {
    return warn("entry " + std::to_string(raft_entry.index) + ": " + entry.error().text());
  }
  const bool valid = group_.apply(entry.value());
  if (of_other_job()) return;
  if (const auto* seat = valid ? std::get_if<CoordinatorAt>(&entry.value()) : nullptr) {
    if (raft_entry.index > heard_to_) heard_at_[seat->place] = seat->address;
    dial();
  }
  const bool end = std::holds_alternative<JobEnded>(entry.value());
  if (valid && !end) tell_all(entry.value());
  if (valid && !leader_)
    for (Event& told : told_of(group_, entry.value()))
      commands_.push_back(Tell{std::move(told), /*of_log=*/true});
  if (leader_) take(leader_->on(leader_event::Applied{entry.value(), valid}));
  if (valid && end) tell_all(entry.value());  // after all other events
}

event::Ended Coordinator::ended_event(const JobEnded& end) const {
  event::Ended told{end.exit_code - kExitSignal, end.version, std::nullopt, end.reason};
  if (!group_.checkpoints().empty()) told.checkpoint = group_.checkpoints().back().version;
  return told;
}

// Tells events that every coordinator tells, since the leader may be lost before it does.
void Coordinator::tell_all(const Entry& entry) {
  // The leader tells all other entries; coordinators that do not lead tell told_of() of them.
  static_assert(kAllKinds<Entry, JobEnded, Published, Restarted, /*not here:*/ JobStarted, Joined,
                          LeaveAnnounced, Lost, Plan, Damaged, CoordinatorAt>);
  if (const auto* end = std::get_if<JobEnded>(&entry)) {
    if (end->exit_code == 0)
      tell(event::Done{end->version, end->digest, end->loss});
    else if (end->exit_code > kExitSignal)
      tell(ended_event(*end));
    else
      tell(event::Failed{end->exit_code, end->reason});
  } else if (const auto* published = std::get_if<Published>(&entry)) {
    tell(event::CheckpointWritten{published->checkpoint.version, {}});
  } else if (const auto* restarted = std::get_if<Restarted>(&entry)) {
    tell(event::Restarted{restarted->version, restarted->lost, restarted->cause});
  }
}

// R10: nothing is formed before an entry of its own term is applied.
void Coordinator::review_leadership() {
  if (of_other_job()) return;
  const bool early = config_.leader.bugs.r10_form_early && raft_.role() == RaftRole::kLeader;
  if (!raft_.leads_with_own_entry_committed() && !early) {
    leader_.reset();
    unproposed_.clear();  // the present leader works out what is to be decided
    unproposed_bytes_ = 0;
    return;
  }
  if (leader_) return;
  // Which workers are admitted depends on what the job goes on from.
  if (!group_.job()) {
    if (std::exchange(job_proposed_, raft_.term()) != raft_.term()) propose(config_.job);
    return;
  }
  leader_ = std::make_unique<Leader>(config_.leader, group_, raft_.term(), now_ms_, told_);
  tell(event::LeaderElected{raft_.term(), config_.raft.self, 0, raft_.patience_ms()});
  take(leader_->announce());
  if (checkpoint_asked_) take(leader_->on(leader_event::AskCheckpoint{}));
  if (end_asked_) take(leader_->on(*end_asked_));
}

void Coordinator::take(LeaderCommands commands) {
  static_assert(kAllKinds<LeaderCommand, leader_command::Send, leader_command::Propose,
                          StoreCheckpoint, TidyCheckpoints, Event>);
  for (LeaderCommand& command : commands) {
    if (auto* send = std::get_if<leader_command::Send>(&command)) {
      commands_.push_back(SendWorker{send->to, std::move(send->body)});
    } else if (auto* proposal = std::get_if<leader_command::Propose>(&command)) {
      propose(std::move(proposal->entry));
    } else if (auto* store = std::get_if<StoreCheckpoint>(&command)) {
      commands_.push_back(std::move(*store));
    } else if (auto* tidy = std::get_if<TidyCheckpoints>(&command)) {
      commands_.push_back(std::move(*tidy));
    } else {
      tell(std::get<Event>(std::move(command)));
    }
  }
}

void Coordinator::propose(Entry entry) {
  if (auto* plan = std::get_if<Plan>(&entry)) {
    const std::array<std::uint64_t, 2> id{plan->id.term, plan->id.counter};
    plan->key = mac(config_.secret, as_bytes(std::span<const std::uint64_t>(id)));
  }
  Bytes data = encode_entry(entry);
  // Propose in order: a later entry may rest on an earlier one.
  auto index = unproposed_.empty()
                   ? raft_.propose(data)
                   : Result<std::uint64_t>(Error(Code::kUnavailable, "others wait before it"));
  if (index) return;
  if (index.error().code() == Code::kBadInput) {  // no other coordinator could propose it either
    JobEnded end;
    end.exit_code = kExitInternal;
    end.reason = "an entry of the log cannot be proposed: " + index.error().text();
    propose(std::move(end));
    return;
  }
  if (unproposed_.empty()) warn("not proposed yet: " + index.error().text());
  unproposed_bytes_ += data.size();
  unproposed_.push_back(std::move(data));
  if (unproposed_bytes_ <= config_.waiting_bytes_max || failed_) return;
  failed_ = true;
  commands_.push_back(Fail{"as more is to be decided than its group can store"});
}

}  // namespace starling::elastic
