// Directed schedules for the rules of epochs: R10, R11's fence, R13, R16.

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>

#include "core/wire/codec.h"
#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;
using elastic::RaftRole;

// The plan at the end of a coordinator's log, if it is not committed.
std::optional<Plan> proposed(const CoordinatorProcess& c) {
  if (!c.alive()) return std::nullopt;
  const elastic::Raft& raft = c.machine().raft();
  if (raft.log().size() <= raft.commit_index()) return std::nullopt;
  const auto entry = decode_entry(raft.log().back().data);
  const Plan* plan = entry ? std::get_if<Plan>(&entry.value()) : nullptr;
  return plan ? std::optional(*plan) : std::nullopt;
}

bool contains_plan(const std::vector<RaftEntry>& log, const EpochId& id) {
  return std::any_of(log.begin(), log.end(), [&](const RaftEntry& raft_entry) {
    if (raft_entry.data.empty()) return false;
    const auto entry = decode_entry(raft_entry.data);
    const Plan* plan = entry ? std::get_if<Plan>(&entry.value()) : nullptr;
    return plan && plan->id == id;
  });
}

// R10. Two leaders form plans with the same predecessor. That takes more than the rule's first half
// broken: a leader that forms before an entry of its own term is applied does not know what its
// predecessor left. Method: the first leader's plan reaches the log of one other coordinator, then
// the leader is cut off; the other one is elected and forms at once; then the log moves on and
// commits both plans.
struct TwoLeaders : Schedule {
  explicit TwoLeaders(World& w) : Schedule(w) {}
  void on_event() override {
    switch (phase) {
      case 0:
        break_epoch();
        break;
      case 1:
        cut_off_first();
        break;
      case 2:
        cut_off_after_append();
        break;
      case 3:
        hold_up_second();
        break;
      case 4:
        both_proposed();
        break;
      default:
        break;
    }
  }
  void break_epoch() {
    if (world.oracle().reached() < kStep || !world.leader()) return;
    phase = 1;
    first = world.leader()->index();
    world.bulk().break_between(*world.worker_in(0), *world.worker_in(1));
  }
  // Its plan still gets out, to one of the others.
  void cut_off_first() {
    const auto plan = proposed(world.coordinator(first));
    if (!plan) return;
    phase = 2;
    first_plan = plan->id;
    second = (first + 1) % 3;
    const std::uint32_t third = (first + 2) % 3;
    for (const std::uint32_t other : {second, third}) world.block(other, first, kApart);
    world.block(first, third, kApart);
  }
  void cut_off_after_append() {
    if (!contains_plan(world.coordinator(second).disk_log, first_plan)) return;
    phase = 3;
    world.block(first, second, kApart);
  }
  // Nobody confirms the entry with which its term begins before it has formed its plan.
  void hold_up_second() {
    if (world.coordinator(second).machine().raft().role() != RaftRole::kLeader) return;
    phase = 4;
    world.block((first + 2) % 3, second, world.now() + 80 * kMs);
  }
  void both_proposed() {
    const auto plan = proposed(world.coordinator(second));
    if (!plan || plan->id == first_plan) return;
    phase = 5;
    same_predecessor =
        contains_plan({world.coordinator(second).machine().raft().log()}, first_plan) &&
        plan->predecessor == world.oracle().chain().back();
  }
  std::string missed() override {
    if (phase != 5 || !same_predecessor) return "both leaders' plans have the same predecessor";
    const auto& chain = world.oracle().chain();
    if (std::find(chain.begin(), chain.end(), first_plan) == chain.end())
      return "the first leader's plan is committed";
    if (world.counted("void plan") == 0) return "the second leader's plan is void";
    return "";
  }
  static constexpr Micros kApart = 60 * kSecond;
  int phase = 0;
  std::uint32_t first = 0, second = 0;
  EpochId first_plan;
  bool same_predecessor = false;
};

TEST_CASE("rules: R10, of two leaders' plans with one predecessor the later one is void") {
  Settings s = calm(37);
  s.coordinators = 3;
  s.bugs.r10_form_early = true;
  shows<TwoLeaders>(s, {&Bugs::r10_ignore_predecessor}, "R16, R10: ");
}

// R10. The same without a second leader at work. Method: the coordinator crashes; on its disk
// appears a plan with an old predecessor, as if it had been appended late; it restarts, commits the
// entry, and a worker is lost.
struct PlanOfAFormerLeader : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (done || world.oracle().reached() < kStep) return;
    done = true;
    CoordinatorProcess& c = world.coordinator(0);
    world.crash_coordinator(0, /*down=*/20 * kMs);
    Plan plan = world.oracle().plan(world.oracle().chain().back());
    plan.predecessor = {};
    plan.id.counter += 100;
    c.disk_log.push_back({c.disk_log.size() + 1, c.disk_state.term, encode_entry(plan)});
    world.after(100 * kMs, [this] { world.worker_in(0)->kill("by the script"); });
  }
  std::string missed() override {
    if (world.counted("void plan") != 1) return "one void plan is committed";
    return world.oracle().chain().size() > 1 ? "" : "a valid plan follows";
  }
  bool done = false;
};

TEST_CASE("rules: R10, a plan whose predecessor is not the last valid plan is void") {
  Settings s = calm(32);
  s.steps = 40;
  shows<PlanOfAFormerLeader>(s, {&Bugs::r10_ignore_predecessor}, "");
}

// R11, the fence: a leaver reports, those who go on do not. Method: worker 2 announces its leave;
// when the others switch to the epoch without it, they are cut off from the coordinator, who so
// does not know that they did, but not from each other. Worker 2 holds a copy of everything and
// would be enough to go on with, were there not the epoch that it is no member of.
struct LeaverReportsAlone : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (announced || world.oracle().reached() < kStep) return;
    announced = true;
    world.announce_leave(*world.worker_in(2), /*notice=*/20 * kSecond);
  }
  void on_moment(WorkerProcess& p, Moment moment, Version) override {
    if (moment == Moment::kReported && apart)
      (p.slot() == 2 ? leaver_reported : others_reported) = true;
    if (moment != Moment::kSwitched || cut_off) return;
    cut_off = apart = true;
    switched_to = world.oracle().chain().back();
    const Micros until = world.now() + 1 * kSecond;
    for (const std::uint32_t slot : {0u, 1u}) {
      world.block(world.place_of_worker(slot), /*coordinator=*/0, until);
      world.block(/*coordinator=*/0, world.place_of_worker(slot), until);
    }
    world.at(until - 1, [this] { look(); });
  }
  // A moment before all hear each other again.
  void look() {
    apart = false;
    waited = world.oracle().chain().back() == switched_to && leaver_reported && !others_reported;
    const WorkerProcess* leaver = world.worker_in(2);
    if (!leaver) return;
    version = leaver->machine().version();
    went_on = world.worker_in(0)->machine().version() > version + 5;
    copies = std::all_of(leaver->store().held.begin(), leaver->store().held.end(),
                         [](bool held) { return held; });
  }
  std::string missed() override {
    if (!copies) return "the leaver holds a copy of everything";
    if (!went_on) return "the others train on";
    if (!waited) return "only the leaver has reported, and the leader waits";
    const auto& chain = world.oracle().chain();
    const auto next = std::find(chain.begin(), chain.end(), switched_to) + 1;
    if (next == chain.end() || world.oracle().plan(*next).base <= version)
      return "the next epoch goes on from where the others are";
    return "";
  }
  bool announced = false, cut_off = false, apart = false;
  bool leaver_reported = false, others_reported = false;
  bool waited = false, went_on = false, copies = false;
  Version version = 0;  // the leaver's
  EpochId switched_to;
};

TEST_CASE("rules: R11, a leaver's report alone does not end the epoch that goes on without it") {
  Settings s = calm(38);
  s.steps = 200;
  s.faults.until = 5 * kSecond;
  shows<LeaverReportsAlone>(s, {&Bugs::r11_no_fence}, "R11: ");
}

// R13. Method: a joiner waits to be let in when a connection breaks, so the forced plan has a
// member without any copy; equal placement would make it an owner.
struct BreakWhileAJoinerWaits : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (joined || world.oracle().reached() < kStep) return;
    joined = true;
    world.start_worker(3);
    world.after(20 * kMs,
                [this] { world.bulk().break_between(*world.worker_in(0), *world.worker_in(1)); });
  }
  std::string missed() override {
    for (const EpochId& id : world.oracle().chain()) {
      const Plan& plan = world.oracle().plan(id);
      if (plan.kind != PlanKind::kForced || plan.members.size() != 4) continue;
      const auto joiner = std::find_if(plan.members.begin(), plan.members.end(),
                                       [](const Member& m) { return m.joiner; });
      if (joiner == plan.members.end()) return "the new member is a joiner";
      const Rank rank = static_cast<Rank>(joiner - plan.members.begin());
      for (const auto& holders : plan.holders)
        if (std::count(holders.begin(), holders.end(), rank) != 0)
          return "the joiner holds nothing yet";
      return plan.moves.empty() ? "segments move to the joiner" : "";
    }
    return "a forced plan takes the joiner in";
  }
  bool joined = false;
};

TEST_CASE("rules: R13, who has no current copy owns nothing") {
  Settings s = calm(39);
  s.steps = 40;
  s.change_window_ms = 500;  // the break comes first
  shows<BreakWhileAJoinerWaits>(s, {&Bugs::r13_any_owner}, "R13: ");
}

// R16. A plan that was proposed and is lost with its leader. Method: commits are quicker than
// messages, so that elsewhere it makes no difference when a plan is sent; a connection breaks, and
// the coordinator crashes in the moment in which it has proposed the next plan.
struct ProposalIsLost : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (!broken && world.oracle().reached() >= kStep) {
      broken = true;
      world.bulk().break_between(*world.worker_in(0), *world.worker_in(1));
    }
    if (!broken || crashed) return;
    CoordinatorProcess& c = world.coordinator(0);
    const auto plan = proposed(c);
    if (!plan) return;
    crashed = true;
    lost = plan->id;
    world.crash_coordinator(0, /*down=*/50 * kMs);
    gone = !contains_plan(c.disk_log, lost);
  }
  std::string missed() override {
    if (!crashed || !gone) return "the proposal is lost in the crash";
    const auto& chain = world.oracle().chain();
    if (chain.size() != 2 || chain.back() == lost) return "another plan takes its place";
    return "";
  }
  bool broken = false, crashed = false, gone = false;
  EpochId lost;
};

TEST_CASE("rules: R16, a plan that was only proposed is not obeyed") {
  Settings s = calm(40);
  s.persist = {100, 100};
  s.control_delay = {2 * kMs, 2 * kMs};
  shows<ProposalIsLost>(s, {&Bugs::r16_obey_proposals}, "R16");
}

}  // namespace
}  // namespace starling::sim
