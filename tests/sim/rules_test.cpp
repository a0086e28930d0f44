// Every rule broken on purpose (elastic/protocol/bugs.h): the world notices, and the same seed is
// clean without the fault. A switch that no oracle notices would mean that the simulator proves
// nothing about its rule. Directed schedules: step_rules_test.cpp, epoch_rules_test.cpp.

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

struct BrokenRule {
  const char* rule;
  Switches switches;
  std::uint64_t seed;  // one that is known to notice
};

// With STARLING_SIM_SEARCH=first:count they are searched for: prints which seed it took.
void notices(const std::string& rule, std::uint64_t known, const Draw& broken) {
  INFO(rule);
  const SeedRange seeds = seeds_of_environment("STARLING_SIM_SEARCH", {known, 1});
  const BatchResult batch = run_seeds(seeds.first, seeds.count, broken, /*until_violation=*/true);
  const Verdict* found = batch.violated();
  std::printf("%-28s %s: %s\n", rule.c_str(),
              found ? ("noticed by seed " + std::to_string(found->seed)).c_str() : "NOT NOTICED",
              found ? found->violation.substr(0, 140).c_str() : "");
  CHECK(found != nullptr);
  if (!found) return;
  const BatchResult clean = run_seeds(found->seed, 1, draw_settings);
  CHECK(clean.runs.front().violation == "");
}

TEST_CASE("rules: each one broken on purpose is noticed by a random run") {
  const BrokenRule table[] = {
      {"R1 accept other epochs", {&Bugs::r1_accept_other_epochs}, 139},
      {"R4 vote without totals", {&Bugs::r4_vote_without_totals}, 1},
      {"R5 pass without all", {&Bugs::r5_pass_without_all}, 1},
      {"R6 apply at vote", {&Bugs::r6_apply_at_vote}, 1},
      {"R7 clear at vote", {&Bugs::r7_clear_at_vote}, 1},
      {"R8 forget work", {&Bugs::r8_forget_work}, 7},
      {"R9 keep sending", {&Bugs::r9_keep_sending}, 7},
      {"R9 enter below promise", {&Bugs::r9_enter_below_promise}, 11},
      // Either half alone keeps the chain of plans single; a leader's haste shows only without
      // both.
      {"R10 form early, any plan", {&Bugs::r10_form_early, &Bugs::r10_ignore_predecessor}, 146},
      {"R11 any report", {&Bugs::r11_any_report}, 7},
      {"R11 any member", {&Bugs::r11_any_member}, 7},
      // R11's fence is needed too seldom for a random run: epoch_rules_test.cpp.
      {"R11 revive leaver", {&Bugs::r11_revive_leaver}, 57062},
      {"R11 leaver voted", {&Bugs::r11_leaver_voted}, 11274},
      {"R12 never finish", {&Bugs::r12_never_finish}, 183},
      {"R12 always finish", {&Bugs::r12_always_finish}, 11},
      {"R13 any owner", {&Bugs::r13_any_owner}, 7},
      {"R15 switch early", {&Bugs::r15_switch_early}, 34},
      {"R16 obey proposals", {&Bugs::r16_obey_proposals}, 1},
      {"R17 some votes", {&Bugs::r17_some_votes}, 26},
      {"prepared holders moving", {&Bugs::prepared_holders_moving}, 7},
      {"share overlap", {&Bugs::share_overlap}, 7},
      {"shares by some votes", {&Bugs::shares_by_some_votes}, 1},
      {"shares not of plan", {&Bugs::shares_not_of_plan}, 7},
      {"scale of start", {&Bugs::scale_of_start}, 2},
      {"recheck unawaited", {&Bugs::recheck_unawaited}, 1},
      {"R18 contributors of plan", {&Bugs::contributors_of_plan}, 1},
      {"R19 prepared rate", {&Bugs::r19_prepared_rate}, 29},
      {"R19 rate of told steps", {&Bugs::r19_rate_of_told}, 82},
  };
  const char* only = std::getenv("STARLING_SIM_RULE");
  for (const BrokenRule& b : table) {
    if (only && std::string(b.rule).find(only) == std::string::npos) continue;
    notices(b.rule, b.seed, [&b](std::uint64_t seed) {
      Settings settings = draw_settings(seed);
      if (std::string(b.rule).find("R19") == std::string::npos) {
        settings.checkpoint.every = 0;
        settings.faults.rates = 0;
      }
      settings.log_entries_max = 1024;
      settings.faults.wipes = 0;
      settings.faults.flips = 0;
      settings.compare = {0, 0};
      settings.roles = std::string(b.rule).find("R18") != std::string::npos;
      if (std::string(b.rule).find("R17") == std::string::npos) {
        settings.transport_ready = {0, 0};
        settings.faults.transport_losses = 0;
      }
      for (const auto rule : b.switches) settings.bugs.*rule = true;
      return settings;
    });
  }
}

}  // namespace
}  // namespace starling::sim
