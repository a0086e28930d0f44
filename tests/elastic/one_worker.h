#pragma once
// One worker machine and the hand that feeds it: rank 0 of three, everything held by everybody,
// each rank the owner of one of three segments. The hand answers at once what needs nobody else
// (norms); everything that a test is about it leaves to the test.

#include <memory>
#include <variant>
#include <vector>

#include "elastic/protocol/shares.h"
#include "elastic/protocol/worker.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {

inline constexpr std::uint32_t kMicroBatches = 6;  // two each

struct OneWorker {
  explicit OneWorker(Bugs bugs = {}, RecheckRule recheck = {}) : worker(config(bugs, recheck)) {}

  static WorkerConfig config(const Bugs& bugs, const RecheckRule& recheck = {}) {
    WorkerConfig c;
    c.micro_batches = kMicroBatches;
    c.steps = 10;
    c.segments = 3;
    c.elastic.digest_every = 0;
    c.bugs = bugs;
    c.recheck = recheck;
    return c;
  }
  static Member member(std::uint64_t nonce) {
    Member m;
    m.who = {nonce, Nonce(nonce)};
    return m;
  }
  // Members 1, 2, 3 (this worker is 1), equal shares.
  static Plan plan(PlanKind kind, EpochId id, EpochId predecessor, Version base = 0,
                   BeginAt begin = BeginAt::kCompute) {
    Plan p;
    p.kind = kind;
    p.id = id;
    p.predecessor = predecessor;
    p.base = base;
    p.begin = begin;
    for (std::uint64_t nonce : {1, 2, 3}) p.members.push_back(member(nonce));
    p.holders = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}};
    if (kind != PlanKind::kPrepared)
      p.shares = first_shares(std::vector<Capacity>(p.members.size()), kMicroBatches);
    return p;
  }

  // The commands of one event, and of the answers that it causes.
  WorkerCommands on(const WorkerEvent& event) {
    WorkerCommands now = worker.on(event);
    for (std::size_t i = 0; i < now.size(); ++i)
      if (const auto* norm = std::get_if<worker_command::ComputeNorm>(&now[i])) {
        auto more = worker.on(worker_event::Reduced{norm->epoch, norm->version, {}});
        now.insert(now.end(), more.begin(), more.end());
      }
    all.insert(all.end(), now.begin(), now.end());
    return now;
  }
  WorkerCommands receive(Message m) { return on(worker_event::Received{std::move(m)}); }

  // In the first epoch, computing step 0.
  void begin() {
    Join join;
    join.who = {0, 1};
    on(worker_event::Start{join});
    receive(Welcome{{1, 1}, ""});
    receive(Freeze{kFirst});
    receive(Committed{plan(PlanKind::kFresh, kFirst, {})});
    on(worker_event::Initialised{kFirst});
    on(worker_event::Connected{kFirst});
  }
  void enter(const Plan& p) {
    receive(Committed{p});
    on(worker_event::Connected{p.id});
  }
  WorkerCommands done(Version v, MicroBatch m) {
    return on(worker_event::MicroBatchDone{v, row(m)});
  }
  void own_share(Version v) {
    for (MicroBatch m : {MicroBatch{0}, MicroBatch{1}}) done(v, m);
  }
  WorkerCommands reduced(EpochId e, Version v) { return on(worker_event::Reduced{e, v, {}}); }
  WorkerCommands ledger(EpochId e, Version v, Rank from) {
    return on(worker_event::LedgerArrived{
        e, from, v, {row(MicroBatch(2 * from)), row(MicroBatch(2 * from + 1))}});
  }
  WorkerCommands vote(EpochId e, Version v, Rank from, EpochId ready_for = {}) {
    Vote vote{v};
    vote.ready_for = ready_for;
    return on(worker_event::VoteArrived{e, from, vote});
  }
  // Up to its own vote for the step, whose parameters are there.
  void vote_for(EpochId e, Version v) {
    own_share(v);
    reduced(e, v);
    for (Rank from : {Rank{1}, Rank{2}}) ledger(e, v, from);
  }
  void pass(EpochId e, Version v) {
    vote_for(e, v);
    for (Rank from : {Rank{1}, Rank{2}}) vote(e, v, from);
    on(worker_event::Gathered{e, v + 1});
  }

  template <class Command>
  static std::vector<Command> among(const WorkerCommands& commands) {
    std::vector<Command> found;
    for (const auto& command : commands)
      if (const auto* c = std::get_if<Command>(&command)) found.push_back(*c);
    return found;
  }
  template <class Command>
  std::size_t count() const {
    return among<Command>(all).size();
  }
  // Messages of one kind that were sent to coordinators.
  template <class Body>
  std::vector<Body> said() const {
    std::vector<Body> found;
    for (const auto& to : among<worker_command::ToCoordinators>(all))
      if (const auto* body = std::get_if<Body>(&to.body)) found.push_back(*body);
    return found;
  }
  void forget() { all.clear(); }

  static LedgerRow row(MicroBatch m) {
    LedgerRow r;
    r.micro_batch = m;
    r.loss = 1 + m;
    r.tokens = 10;
    return r;
  }

  Worker worker;
  WorkerCommands all;  // since begin() or forget()
};

}  // namespace starling::elastic
