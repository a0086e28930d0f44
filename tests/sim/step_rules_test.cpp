// Directed schedules for the rules of a step: R1, R3, R6, R7, R8, R14, R17, and rechecks.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

// R1. Method: the first worker that is done with the step has sent its contribution, but what it
// sends to a second one is stuck; the second and the third lose their connection, so that a new
// epoch begins within the same step; then what was stuck arrives.
struct LateFrames : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess& first, Moment moment, Version version) override {
    if (done || moment != Moment::kReducing || version != kStep) return;
    done = true;
    std::vector<WorkerProcess*> others;
    for (const auto& p : world.workers())
      if (p.get() != &first) others.push_back(p.get());
    // What it has just sent is on its way; nothing of it is there yet.
    world.bulk().stall(first, *others[0], /*duration=*/40 * kMs);
    world.after(1 * kMs, [this, others] { world.bulk().break_between(*others[0], *others[1]); });
  }
  bool done = false;
};

TEST_CASE("rules: R1, frames of an epoch that was left do not count") {
  Settings s = calm(30);
  s.compute = {20 * kMs, 150 * kMs};
  shows<LateFrames>(s, {&Bugs::r1_accept_other_epochs}, "R1: ");
}

// R3. Method: one contribution frame arrives with nothing in it, lanes included; everything else is
// as it should be. Its receiver must not accept the total.
TEST_CASE("rules: R3, a lost contribution is refused") {
  const auto run = [](bool plant) {
    Settings s = calm(31);
    s.plant_lost_contribution = plant;
    return run_isolated([s](bool trace) { return World(s, trace).run(); });
  };
  const Verdict planted = run(true);
  INFO(planted.violation, planted.exit_code);
  CHECK(planted.violation.find("R3: ") == 0);
  const Verdict clean = run(false);
  CHECK(clean.violation == "");
  CHECK(clean.exit_code == 0);
}

// R4. Method: a bit of worker 1's parameters changes when they have been published, before anybody
// reads them, and its compare takes longer than the others need to vote.
struct OneIsDamaged : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess& p, Moment moment, Version version) override {
    if (done || moment != Moment::kApplied || version != kStep || p.slot() != 1) return;
    done = true;
    p.compare_takes = 60 * kMs;
    p.flip(which(p));
  }
  virtual SegmentId which(const WorkerProcess& p) const {
    return first_held(p, /*owned=*/false);  // no words of it leave
  }
  static SegmentId first_held(const WorkerProcess& p, bool owned) {
    const Plan& plan = *p.machine().run()->plan;
    const Rank self = p.machine().run()->self;
    for (SegmentId s = 0; s < plan.holders.size(); ++s)
      if (p.store().held[s] && (plan.holders[s].front() == self) == owned) return s;
    return 0;
  }
  std::string missed() override {
    if (!done) return "a worker's parameters change";
    const auto& chain = world.oracle().chain();
    const bool without = std::ranges::any_of(chain, [this](const EpochId& epoch) {
      return world.oracle().plan(epoch).members.size() == 2;
    });
    return without ? "" : "the damaged worker ends, and the others go on";
  }
  bool done = false;
};

template <class Script>
void shows_planted(Settings s, bool Settings::*plant, const std::string& notice) {
  const auto script = [](World& world) { return std::make_unique<Script>(world); };
  const Verdict clean = run_schedule(s, script);
  CHECK(clean.violation == "");
  CHECK(clean.exit_code == 0);
  s.*plant = true;
  const Verdict planted = run_schedule(s, script);
  INFO(planted.violation);
  CHECK(planted.violation.find(notice) == 0);
}

TEST_CASE("rules: R4, no row leaves before what it was computed from has been compared") {
  Settings s = calm(39);
  s.replicas = 1;
  shows_planted<OneIsDamaged>(s, &Settings::plant_rows_first, "P1: ");
}

// Method: as above, of a segment that worker 1 owns and one other has no copy of: the words that leave
// are not those that were published.
struct OwnerIsDamaged : OneIsDamaged {
  using OneIsDamaged::OneIsDamaged;
  SegmentId which(const WorkerProcess& p) const override { return first_held(p, /*owned=*/true); }
  std::string missed() override {
    if (world.counted("damaged parameters refused") == 0) return "somebody refuses the words";
    return OneIsDamaged::missed();
  }
};

TEST_CASE("rules: an owner's words count only if they are what it published") {
  Settings s = calm(40);
  s.replicas = 1;
  shows_planted<OwnerIsDamaged>(s, &Settings::plant_unproven_words, "T9: ");
}

// R6, R7. A vote that was cast and never passed: its step is done again from what the voter has.
// Method: what workers 1 and 2 send each other is stuck, so that only worker 0 gets all totals and
// votes (there are no replicas: it needs nobody's total); then it loses a connection and the epoch
// ends.
struct OneHasVoted : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess& p, Moment moment, Version version) override {
    if (version != kStep || ended) return;
    if (moment == Moment::kReducing && p.slot() != 0)
      world.bulk().stall(p, *world.worker_in(3 - p.slot()), /*duration=*/200 * kMs);
    if (moment == Moment::kVoted && p.slot() == 0)
      world.after(1 * kMs, [this, &p] { end_epoch(p); });
  }
  void end_epoch(WorkerProcess& voter) {
    ended = true;
    alone = voter.machine().pending() && !world.worker_in(1)->machine().pending() &&
            !world.worker_in(2)->machine().pending();
    const auto& states = voter.store().states;
    untouched = std::all_of(states.begin(), states.end(), [](const SegmentState& s) {
      return s.label == kStep || s.label == kNoVersion;
    });
    kept = voter.store().adding == kStep;
    world.bulk().break_between(voter, *world.worker_in(1));
  }
  std::string missed() override {
    if (!ended || !alone) return "worker 0 alone has voted";
    if (!untouched) return "the state is at the step's version";  // R6
    if (!kept) return "the accumulators hold the step's work";    // R7
    const auto& chain = world.oracle().chain();
    if (chain.size() != 2 || world.oracle().plan(chain.back()).base != kStep)
      return "the step is done again in a new epoch";
    if (world.oracle().begun_again() != 0) return "no micro-batch is computed again";
    return "";
  }
  bool ended = false, alone = false, untouched = false, kept = false;
};

TEST_CASE("rules: R6, R7, a vote that does not pass changes neither state nor accumulators") {
  Settings s = calm(35);
  s.replicas = 0;
  SUBCASE("R6") {
    shows<OneHasVoted>(s, {&Bugs::r6_apply_at_vote}, "R6: ");
  }
  SUBCASE("R7") {
    shows<OneHasVoted>(s, {&Bugs::r7_clear_at_vote}, "R7: ");
  }
}

// R8. Method: a worker is killed when its second micro-batch of the step is done. What it had begun
// is computed again, and nothing else: the others keep what they have done and what they are at.
struct OneDiesInMidStep : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess& p, Moment moment, Version version) override {
    if (moment != Moment::kComputed || version != kStep || p.slot() != 1 || ++computed != 2) return;
    lost = world.oracle().begun_by(p, version);
    for (const std::uint32_t slot : {0u, 2u})
      kept += world.oracle().begun_by(*world.worker_in(slot), version);
    p.kill("by the script");
  }
  std::string missed() override {
    if (lost == 0 || kept == 0) return "everybody had begun micro-batches of the step";
    const std::uint64_t again = world.oracle().begun_again();
    if (again == lost) return "";
    return std::to_string(lost) + " micro-batches were in progress at the worker that died, " +
           std::to_string(again) + " were computed again";
  }
  int computed = 0;
  std::uint64_t lost = 0, kept = 0;
};

TEST_CASE("rules: R8, what a worker that died had begun is computed again, nothing else") {
  Settings s = calm(36);
  s.micro_batches = 12;
  shows<OneDiesInMidStep>(s, {&Bugs::r8_forget_work}, "R8: ");
}

// R14. The owner's total and its move come over one connection in order, so the state is always
// there first; the rule is needed as soon as moves travel apart. Method: they do, and a worker
// joins.
struct OneJoins : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (joined || world.oracle().reached() < kStep) return;
    joined = true;
    world.start_worker(world.slots());
  }
  bool joined = false;
};

TEST_CASE("rules: R14, a move's target votes only when the state is there") {
  Settings s = calm(33);
  s.steps = 40;
  s.move_delay = 60 * kMs;
  shows<OneJoins>(s, {&Bugs::r14_vote_without_move}, "R4, R14: ");
}

// The scale of the loss. Method: it has been doubled when a worker joins, which learns it with the
// record of the step before its first one.
TEST_CASE("rules: who enters scales the loss as all others do") {
  Settings s = calm(38);
  s.steps = 40;
  s.loss_scale = {.on = true, .first = 4, .every = 3};
  shows<OneJoins>(s, {&Bugs::scale_of_start}, "P1: ");
}

// Rechecks. Method: in each step each member computes a micro-batch again, which takes longer than
// everything else that a vote needs. A vote that does not wait lets new parameters come under it.
struct EveryStepRechecks : Schedule {
  using Schedule::Schedule;
  std::string missed() override {
    if (world.counted("micro-batch computed a second time") < 3 * 12) return "all compute again";
    return "";
  }
};

TEST_CASE("rules: a vote waits for the passes that compute micro-batches again") {
  Settings s = calm(39);
  s.elastic.recheck = 1000;
  s.recheck_first = 12;
  s.compute = {20 * kMs, 150 * kMs};
  shows<EveryStepRechecks>(s, {&Bugs::recheck_unawaited}, "T9: ");
}

// R17. Method: the transport is ready a few steps later at some members than at others. A
// member that leaves its own vote out takes a transport that it does not have.
struct TransportsOneByOne : Schedule {
  using Schedule::Schedule;
  std::string missed() override {
    if (world.counted("transport ready at some members") == 0)
      return "some had a transport, others none";
    if (world.counted("device step") == 0) return "a step went over the device transport";
    if (world.counted("device step broken") != 0) return "no step on the device broke";
    return "";
  }
};

TEST_CASE("rules: R17, a step takes the device transport if every vote has named it") {
  Settings s = calm(37);
  s.steps = 60;
  s.transport_ready = {10 * kMs, 100 * kMs};
  shows<TransportsOneByOne>(s, {&Bugs::r17_some_votes}, "R17: ");
}

// R17. Method: as soon as a member has sent a vote that names its transport, that transport is lost
// there. The step that follows it begins over the device transport at all others; it must end in a
// new epoch, whose first step goes over the TCP transport, and nobody is left out.
struct LostAfterTheVote : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess& p, Moment moment, Version) override {
    if (lost || moment != Moment::kVoted || p.slot() != 1) return;
    const EpochId epoch = p.machine().run()->plan->id;
    const Link& link = p.links().at(epoch);
    if (link.ready_attempt == 0 || world.counted("device step") == 0) return;
    lost = true;
    world.count("transport lost");
    world.after(0, [&p, epoch, attempt = link.ready_attempt] {
      p.submit([&p, epoch, attempt] { p.lose_transport(epoch, attempt); });
    });
  }
  std::string missed() override {
    if (!lost) return "a transport is lost after a vote";
    if (world.counted("device step broken") == 0) return "a step on the device breaks";
    const auto& chain = world.oracle().chain();
    if (chain.size() != 2) return "one new epoch";
    if (world.oracle().plan(chain.back()).members.size() != 3) return "nobody is left out";
    return "";
  }
  bool lost = false;
};

TEST_CASE(
    "rules: R17, a transport that is lost between vote and step ends the epoch, and no more") {
  Settings s = calm(38);
  s.steps = 60;
  s.transport_ready = {5 * kMs, 20 * kMs};
  const Verdict run =
      run_schedule(s, [](World& world) { return std::make_unique<LostAfterTheVote>(world); });
  CHECK(run.violation == "");
  CHECK(run.exit_code == 0);
}

}  // namespace
}  // namespace starling::sim
