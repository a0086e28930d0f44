#include "elastic/membership/coordinator.h"

#include <utility>

#include "core/base/mac.h"
#include "core/wire/codec.h"

namespace starling::elastic {

using namespace coordinator_event;
using namespace coordinator_command;

Coordinator::Coordinator(CoordinatorConfig config, HardState hard_state, std::vector<RaftEntry> log)
    : config_(std::move(config)),
      raft_(config_.raft, std::move(hard_state), std::move(log)),
      group_(config_.leader.bugs) {}

Coordinator::~Coordinator() = default;

CoordinatorCommands Coordinator::on(const CoordinatorEvent& event) {
  commands_.clear();
  std::visit([this](const auto& e) { on_event(e); }, event);
  drain();
  return std::exchange(commands_, {});
}

void Coordinator::on_event(const Tick& e) {
  now_ms_ = e.now_ms;
  raft_.tick(now_ms_);
  if (leader_) take(leader_->on(leader_event::Tick{now_ms_}));
}

void Coordinator::on_event(const RaftArrived& e) {
  if (e.message.from == e.from) raft_.receive(e.message);
}

void Coordinator::on_event(const WorkerSaid& e) {
  if (const auto* notice = std::get_if<Notice>(&e.body)) {  // whoever leads: it is said once
    Observation seen;
    seen.kind = Observation::Kind::kNotice;
    seen.who = e.from;
    seen.name = e.name;
    seen.notice = *notice;
    commands_.push_back(std::move(seen));
  }
  if (leader_) return take(leader_->on(leader_event::Said{e.from, e.name, e.body}));
  if (const auto& end = group_.end()) {
    commands_.push_back(
        SendWorker{e.from, Ended{end->exit_code, end->reason, end->digest, end->loss}});
    return;
  }
  if (const auto* progress = std::get_if<Progress>(&e.body)) {
    Observation step;
    step.kind = Observation::Kind::kStep;
    step.who = e.from;
    step.step = *progress;
    commands_.push_back(std::move(step));
    commands_.push_back(SendWorker{e.from, Noted{progress->record.version}});
    return;
  }
  // It hears from somebody, so it goes on while a leader is being elected.
  commands_.push_back(SendWorker{e.from, LeaderHint{raft_.leader().value_or(0), raft_.term()}});
}

void Coordinator::on_event(const Persisted&) {
  if (waiting_) finish_ready();
}

void Coordinator::on_event(const Stored& e) {
  if (leader_) take(leader_->on(leader_event::Stored{e.version, e.error}));
}

void Coordinator::drain() {
  review_leadership();
  while (!waiting_ && raft_.has_ready()) {
    waiting_ = raft_.take_ready();
    if (waiting_->hard_state || !waiting_->append.empty()) {
      commands_.push_back(Persist{waiting_->hard_state, waiting_->append});
      return;
    }
    finish_ready();
  }
}

void Coordinator::finish_ready() {
  const Ready ready = std::move(*std::exchange(waiting_, std::nullopt));
  raft_.persisted();
  for (const RaftMessage& message : ready.messages) commands_.push_back(SendRaft{message});
  for (const RaftEntry& entry : ready.committed) apply(entry);
  review_leadership();
}

void Coordinator::apply(const RaftEntry& raft_entry) {
  if (raft_entry.data.empty()) return;  // the no-op that begins a term
  auto entry = decode_entry(raft_entry.data);
  if (!entry) {
    Observation warning;
    warning.what = "entry " + std::to_string(raft_entry.index) + ": " + entry.error().text();
    commands_.push_back(std::move(warning));
    return;
  }
  const bool valid = group_.apply(entry.value());
  const bool end = std::holds_alternative<JobEnded>(entry.value());
  if (valid && !end) tell(entry.value());
  if (leader_) take(leader_->on(leader_event::Applied{entry.value(), valid}));
  if (valid && end) tell(entry.value());  // the last word
}

// What every coordinator tells, since the one that leads may be lost before it does.
void Coordinator::tell(const Entry& entry) {
  Observation seen;
  if (const auto* ended = std::get_if<JobEnded>(&entry)) {
    seen.kind = Observation::Kind::kEnd;
    seen.end = *ended;
  } else if (const auto* published = std::get_if<Published>(&entry)) {
    seen.kind = Observation::Kind::kCheckpoint;
    seen.version = published->checkpoint.version;
    seen.what = config_.leader.checkpoint_dir;
  } else if (const auto* restarted = std::get_if<Restarted>(&entry)) {
    seen.kind = Observation::Kind::kRestart;
    seen.version = restarted->version;
    seen.plan.id = restarted->lost;
    seen.what = restarted->cause;
  } else {
    return;
  }
  commands_.push_back(std::move(seen));
}

// R10: nothing is formed before an entry of its own term is applied.
void Coordinator::review_leadership() {
  const bool early = config_.leader.bugs.r10_form_early && raft_.role() == RaftRole::kLeader;
  if (!raft_.leads_with_own_entry_committed() && !early) {
    leader_.reset();
    return;
  }
  if (leader_) return;
  // Whom to admit depends on what the job goes on from.
  if (!group_.job()) {
    if (std::exchange(job_proposed_, raft_.term()) != raft_.term()) propose(config_.job);
    return;
  }
  leader_ = std::make_unique<Leader>(config_.leader, group_, raft_.term(), now_ms_);
  Observation leads;
  leads.kind = Observation::Kind::kLeader;
  leads.term = raft_.term();
  leads.coordinator = config_.raft.self;
  leads.election_ms = config_.raft.election_ms;
  commands_.push_back(std::move(leads));
  take(leader_->announce());
}

void Coordinator::take(LeaderCommands commands) {
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
      commands_.push_back(std::get<Observation>(std::move(command)));
    }
  }
}

void Coordinator::propose(Entry entry) {
  if (auto* plan = std::get_if<Plan>(&entry)) {
    const std::array<std::uint64_t, 2> id{plan->id.term, plan->id.counter};
    plan->key = mac(config_.secret, as_bytes(std::span<const std::uint64_t>(id)));
  }
  auto index = raft_.propose(encode_entry(entry));
  if (index) return;
  Observation warning;
  warning.what = "not proposed: " + index.error().text();
  commands_.push_back(std::move(warning));
}

}  // namespace starling::elastic
