#include "tools/chaos/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

namespace starling::chaos {
namespace {

Draw all_kinds(std::uint64_t seed) {
  Draw draw;
  draw.seed = seed;
  draw.rate = 2;
  draw.seconds = 100;
  draw.kinds.assign(fault_kinds().begin(), fault_kinds().end());
  return draw;
}

Plan plan_of(const Draw& draw) {
  Plan plan;
  plan.seed = draw.seed;
  plan.steps = 1000;
  plan.workers = 5;
  plan.lease_ms = 500;
  plan.faults = draw_faults(draw);
  return plan;
}

std::string refusal(const std::string& toml) {
  auto plan = parse_plan(toml);
  return plan ? "accepted" : plan.error().text();
}

}  // namespace

TEST_CASE("a plan is a function of its seed") {
  CHECK(draw_faults(all_kinds(7)) == draw_faults(all_kinds(7)));
  CHECK(draw_faults(all_kinds(7)) != draw_faults(all_kinds(8)));
}

TEST_CASE("fewer faults than the rate has are spread over the same time") {
  const Draw draw = all_kinds(3);  // 200 in 100 s
  const auto few = draw_faults(spread(draw, 5));
  REQUIRE(few.size() == 5);
  for (std::size_t i = 0; i < few.size(); ++i) {
    CHECK(few[i].at_s >= 20 * double(i));
    CHECK(few[i].at_s <= 20 * double(i + 1));
  }
  CHECK(draw_faults(spread(draw, 1000)) == draw_faults(draw));
}

TEST_CASE("a plan of which no fault can be done is known before its run") {
  const std::vector<const FaultKind*> kill{&faults::kKill}, both{&faults::kKill, &faults::kJoin};
  CHECK(impossible(kill, {.workers = 2, .workers_min = 2}) ==
        "kill: of 2 workers 2 are always left (--keep)");
  CHECK(impossible(kill, {.workers = 3, .workers_min = 2}).empty());
  CHECK(impossible(kill, {.workers = 2, .workers_min = 2, .last_copies = true}).empty());
  CHECK(impossible(both, {.workers = 2, .workers_min = 2}).empty());
  const std::vector<const FaultKind*> stop{&faults::kStop};
  CHECK(impossible(stop, {.workers = 2, .workers_min = 2}).empty());
  CHECK_FALSE(impossible(stop, {.workers = 2, .workers_min = 2, .all_awake = true}).empty());
  const std::vector<const FaultKind*> others{&faults::kCoordinatorKill, &faults::kCheckpointFull};
  CHECK(impossible(others, {.coordinators = 1}) ==
        "coordinator-kill: it needs three coordinators (--coordinators); checkpoint-full: the job "
        "writes no checkpoints");
  CHECK(impossible(others, {.coordinators = 3}).empty());
}

TEST_CASE("one fault in each interval, of every kind, with what its kind needs") {
  const auto faults = draw_faults(all_kinds(1));
  REQUIRE(faults.size() == 200);
  std::set<const FaultKind*> kinds;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const Fault& fault = faults[i];
    CHECK(fault.at_s >= 0.5 * double(i));
    CHECK(fault.at_s <= 0.5 * double(i + 1));
    CHECK(fault.target >= 0);
    CHECK(fault.target < 1);
    kinds.insert(fault.kind);
    const FaultKind::Keys& keys = fault.kind->keys;
    const bool lasts = keys.for_s && fault.kind != &faults::kLeave;  // which has no notice then
    CHECK((fault.back_s > 0) == keys.back_s);
    CHECK((fault.for_s > 0) == lasts);
    CHECK((fault.share > 0) == keys.share);
    CHECK((fault.delay_s > 0) == keys.delay_s);
  }
  CHECK(kinds.size() == fault_kinds().size());
}

TEST_CASE("some cuts are shorter than a lease, most are longer") {
  Draw draw = all_kinds(5);
  draw.kinds = {&faults::kPartition};
  draw.lease_s = 0.4;
  std::size_t longer = 0;
  const auto faults = draw_faults(draw);
  for (const Fault& fault : faults) longer += fault.for_s > draw.lease_s;
  CHECK(longer > faults.size() / 2);
  CHECK(longer < faults.size());
}

TEST_CASE("at least two workers are apart, and a third one is there") {
  const std::string run = "[run]\nsteps = 5\nworkers = 4\n";
  const std::string apart = run + "[[fault]]\nat_s = 1\nkind = \"apart\"\nfor_s = 1\n";
  CHECK(parse_plan(apart).value().faults.front().count == 2);
  CHECK(parse_plan(apart + "count = 3\n").value().faults.front().count == 3);
  CHECK(refusal(apart + "count = 1\n").find("count must be an integer from 2 to 1000") == 0);
  Draw draw = all_kinds(5);
  draw.kinds = {&faults::kApart};
  for (const Fault& fault : draw_faults(draw)) CHECK(fault.count == 2);
  CHECK(impossible({&faults::kApart}, {.workers = 2}) ==
        "apart: it needs three workers (--workers)");
  CHECK(impossible({&faults::kApart}, {.workers = 3}).empty());
}

TEST_CASE("workers are behind a proxy only where a fault is one of links") {
  for (const FaultKind* kind : fault_kinds()) {
    Plan plan;
    plan.faults.push_back({.kind = kind});
    const std::string word = kind->word;
    CAPTURE(word);
    CHECK(disturbs_links(plan) ==
          (word == "partition" || word == "apart" || word == "corrupt" || word == "slow-link"));
  }
}

// Goal: a seed that was noted down somewhere draws the same faults for ever.
// Method: what it drew when this was written.
TEST_CASE("a seed draws what it has always drawn") {
  for (const std::uint64_t seed : {1, 2407}) {
    Draw draw = all_kinds(seed);
    std::erase(draw.kinds, &faults::kApart);  // the fixtures are older
    draw.seconds = 15;
    draw.lease_s = 0.5;
    const std::string path = "tests/fixtures/chaos-plan-" + std::to_string(seed) + ".toml";
    std::ifstream file(path);
    REQUIRE_MESSAGE(file, path);
    const std::string expected((std::istreambuf_iterator<char>(file)), {});
    CHECK(format_plan(plan_of(draw)) == expected);
  }
}

TEST_CASE("more of the same plan begins with it") {
  Draw longer = all_kinds(3);
  longer.seconds = 200;
  const auto shorter_faults = draw_faults(all_kinds(3)), longer_faults = draw_faults(longer);
  CHECK(std::equal(shorter_faults.begin(), shorter_faults.end(), longer_faults.begin()));
}

TEST_CASE("a plan's file reads back as the same plan") {
  const Plan plan = plan_of(all_kinds(11));
  auto read = parse_plan(format_plan(plan));
  REQUIRE(read);
  CHECK(read.value() == plan);
}

TEST_CASE("faults of a file are done in the order of their times") {
  auto plan = parse_plan(
      "[run]\nsteps = 5\nworkers = 2\n"
      "[[fault]]\nat_s = 3\nkind = \"kill\"\n[[fault]]\nat_s = 1.5\nkind = \"join\"\n");
  REQUIRE(plan);
  CHECK(plan.value().faults.front().kind == &faults::kJoin);
}

TEST_CASE("what is wrong in a plan is named") {
  const std::string run = "[run]\nsteps = 5\nworkers = 2\n";
  const struct {
    std::string toml, word;
  } cases[] = {
      {"", "[run]"},
      {"[run]\nsteps = 5\n", "workers is missing"},
      {"[run]\nsteps = 0\nworkers = 2\n", "steps must be"},
      {"[run]\nsteps = 5\nworkers = 2\ncoordinators = 2\n", "coordinators"},
      {run + "[[fault]]\nkind = \"kill\"\n", "at_s is missing"},
      {run + "[[fault]]\nat_s = -1\nkind = \"kill\"\n", "at_s must be"},
      {run + "[[fault]]\nat_s = nan\nkind = \"kill\"\n", "at_s must be"},
      {run + "[[fault]]\nat_s = 1\nkind = \"sing\"\n", "sing"},
      {run + "[[fault]]\nat_s = 1\nkind = \"kill\"\nwhere = 1\n", "where"},
      {run + "[[fault]]\nat_s = 1\nkind = \"kill\"\ntarget = 1\n", "target must be"},
      {run + "[[fault]]\nat_s = 1\nkind = \"kill\"\nnodes = [\"a b\"]\n", "nodes must be"},
      {run + "nodes = \"a\"\n", "nodes must be"},
      {run + "[[fault]]\nat_s = 1\nkind = \"slow-link\"\ndelay_s = 11\n", "delay_s must be"},
      {run + "[[fault]]\nat_s = 1\nkind = \"kill\"\nshare = 0.5\n",
       "share is of no use to a fault of kind kill"},
      {run + "[[fault]]\nat_s = 1\nkind = \"stop\"\nback_s = 1\n", "back_s is of no use"},
      {run + "[[fault]]\nat_s = 1\nkind = \"coordinator-kill\"\ncount = 2\n", "count is of no use"},
      {"fault = 3\n" + run, "[[fault]]"},
      {run + "[runs]\n", "runs"},
      {"[run\n", "line 1"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.toml);
    const std::string said = refusal(c.toml);
    CHECK_MESSAGE(said.find(c.word) != std::string::npos, said);
  }
}

TEST_CASE("kinds are named once each") {
  auto kinds = parse_kinds("kill,coordinator-kill");
  REQUIRE(kinds);
  CHECK(kinds.value() == std::vector{&faults::kKill, &faults::kCoordinatorKill});
  CHECK_FALSE(parse_kinds("kill,kill"));
  CHECK_FALSE(parse_kinds("kill,"));
  CHECK_FALSE(parse_kinds(""));
}

}  // namespace starling::chaos
