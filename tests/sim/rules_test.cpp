// Every rule broken on purpose (elastic/protocol/bugs.h): the world notices, and the same seed is
// clean without the fault. A switch that no oracle notices would mean that the simulator proves
// nothing about its rule.

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/wire/codec.h"
#include "tests/sim/run_seeds.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

struct Broken {
  const char* rule;
  bool Bugs::*bug;
  std::uint64_t seed;  // one that is known to notice
};

// Searched for from seed 1 with STARLING_SIM_SEARCH=count: prints how many seeds it took.
std::uint64_t seeds_to_search() {
  const char* text = std::getenv("STARLING_SIM_SEARCH");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

void notices(const std::string& rule, std::uint64_t known, const Draw& broken) {
  INFO(rule);
  const std::uint64_t search = seeds_to_search();
  const BatchResult batch = search ? run_seeds(1, search, broken, /*until_violation=*/true)
                                   : run_seeds(known, 1, broken, /*until_violation=*/true);
  const Verdict* found = batch.violated();
  std::printf("%-28s %s after %llu seeds: %s\n", rule.c_str(), found ? "noticed" : "NOT NOTICED",
              static_cast<unsigned long long>(batch.seeds),
              found ? found->violation.substr(0, 140).c_str() : "");
  CHECK(found != nullptr);
  if (!found) return;
  const BatchResult clean = run_seeds(found->seed, 1, draw_settings);
  CHECK(clean.runs.front().violation == "");
}

TEST_CASE("rules: each one broken on purpose is noticed by a random run") {
  const Broken table[] = {
      {"R4 vote without totals", &Bugs::r4_vote_without_totals, 1},
      {"R5 pass without all", &Bugs::r5_pass_without_all, 1},
      {"R6 apply at vote", &Bugs::r6_apply_at_vote, 1},
      {"R7 clear at vote", &Bugs::r7_clear_at_vote, 1},
      {"R8 forget work", &Bugs::r8_forget_work, 11},
      {"R9 keep sending", &Bugs::r9_keep_sending, 40},
      {"R9 enter below promise", &Bugs::r9_enter_below_promise, 7},
      {"R11 any report", &Bugs::r11_any_report, 7},
      {"R11 any member", &Bugs::r11_any_member, 7},
      {"R11 no fence", &Bugs::r11_no_fence, 195},
      {"R12 never finish", &Bugs::r12_never_finish, 183},
      {"R12 always finish", &Bugs::r12_always_finish, 26},
      {"R13 any owner", &Bugs::r13_any_owner, 13},
      {"R15 switch early", &Bugs::r15_switch_early, 7},
      {"R16 obey proposals", &Bugs::r16_obey_proposals, 1},
      {"prepared holders moving", &Bugs::prepared_holders_moving, 7},
      {"share overlap", &Bugs::share_overlap, 13},
  };
  for (const Broken& b : table)
    notices(b.rule, b.seed, [&b](std::uint64_t seed) {
      Settings settings = draw_settings(seed);
      settings.bugs.*b.bug = true;
      return settings;
    });
}

Settings calm(std::uint64_t seed) {
  Settings s;
  s.seed = seed;
  s.steps = 12;
  return s;
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

// R1. Method: the first worker that is done with step 3 has sent its contribution, but what it
// sends to a second one is stuck; the second and the third lose their connection, so that a new
// epoch begins within the same step; then what was stuck arrives.
Verdict late_frames(bool accept_other_epochs) {
  return run_isolated([=](bool trace) {
    Settings s = calm(34);
    s.compute = {20 * kMs, 150 * kMs};
    s.bugs.r1_accept_other_epochs = accept_other_epochs;
    World world(s, trace);
    bool done = false;
    world.on_moment = [&world, &done](WorkerProcess& first, Moment moment, Version version) {
      if (done || moment != Moment::kReducing || version != 3) return;
      done = true;
      std::vector<WorkerProcess*> others;
      for (const auto& p : world.workers())
        if (p.get() != &first) others.push_back(p.get());
      // What it has just sent is on its way; nothing of it is there yet.
      world.bulk().stall(first, *others[0], /*duration=*/40 * kMs);
      world.after(1 * kMs,
                  [&world, others] { world.bulk().break_between(*others[0], *others[1]); });
    };
    return world.run();
  });
}

TEST_CASE("rules: R1, frames of an epoch that was left do not count") {
  const Verdict clean = late_frames(false);
  CHECK(clean.violation == "");
  CHECK(clean.exit_code == 0);
  const Verdict broken = late_frames(true);
  INFO(broken.violation, broken.exit_code);
  CHECK(broken.violation != "");
}

// R10. A leader forms one plan at a time from what it applied, so a plan with an old predecessor
// can only come from a leader that lost its office unnoticed. Method: the coordinator crashes; on
// its disk appears such a plan, as if it had been appended late; it restarts, commits the entry,
// and a worker is lost.
Verdict plan_of_a_former_leader(bool ignore_predecessor) {
  return run_isolated([=](bool trace) {
    Settings s = calm(32);
    s.bugs.r10_ignore_predecessor = ignore_predecessor;
    World world(s, trace);
    bool done = false;
    world.on_event = [&world, &done] {
      if (done || world.oracle().reached() < 3) return;
      done = true;
      CoordinatorProcess& c = world.coordinator(0);
      world.crash_coordinator(0, /*down=*/20 * kMs);
      Plan plan = world.oracle().plan(world.oracle().chain().back());
      plan.predecessor = {};
      plan.id.counter += 100;
      c.disk_log.push_back({c.disk_log.size() + 1, c.disk_state.term, encode_entry(plan)});
      world.after(200 * kMs, [&world] { world.worker_in(0)->kill("by the script"); });
    };
    return world.run();
  });
}

TEST_CASE("rules: R10, a plan whose predecessor is not the last valid plan is void") {
  const Verdict clean = plan_of_a_former_leader(false);
  CHECK(clean.violation == "");
  CHECK(clean.exit_code == 0);
  CHECK(plan_of_a_former_leader(true).violation != "");
}

// R14. The owner's total and its move come over one connection in order, so the state is always
// there first; the rule is needed as soon as moves travel apart. Method: they do, and a worker
// joins.
Verdict moves_apart(bool vote_without_move) {
  return run_isolated([=](bool trace) {
    Settings s = calm(33);
    s.steps = 40;
    s.move_delay = 60 * kMs;
    s.bugs.r14_vote_without_move = vote_without_move;
    World world(s, trace);
    bool joined = false;
    world.on_event = [&world, &joined] {
      if (joined || world.oracle().reached() < 3) return;
      joined = true;
      world.start_worker(world.slots());
    };
    return world.run();
  });
}

TEST_CASE("rules: R14, a move's target votes only when the state is there") {
  const Verdict clean = moves_apart(false);
  CHECK(clean.violation == "");
  CHECK(clean.exit_code == 0);
  const Verdict broken = moves_apart(true);
  INFO(broken.violation, broken.exit_code);
  CHECK(broken.violation.find("R14") != std::string::npos);
}

}  // namespace
}  // namespace starling::sim
