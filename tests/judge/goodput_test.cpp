#include "tools/judge/goodput.h"

#include <doctest/doctest.h>

#include "tests/judge/stories.h"

namespace starling::judge {
namespace {

// Ten micro-batches a second of each worker, whatever their number.
const std::vector<Rate> kTen = {{3, 10}};

Tale& commit(Tale& tale, double t, int version, const std::string& epoch = "1.1") {
  return tale.step(t, version, epoch_id(epoch), 3);
}

Deed leave(double t, int worker, double notice) {
  Deed made = deed(&chaos::faults::kLeave, t, worker, t + notice);
  made.for_s = notice;
  return made;
}

double present_at(const Goodput& goodput, double t) {
  double value = 0;
  for (const Point& point : goodput.present)
    if (point.t <= t) value = point.value;
  return value;
}

}  // namespace

TEST_CASE("rates are measured with every number of workers, or evenly with some") {
  CHECK(sizes_between(3, 3) == std::vector<double>{3});
  CHECK(sizes_between(1, 4) == std::vector<double>{1, 2, 3, 4});
  CHECK(sizes_between(2, 32) == std::vector<double>{2, 8, 14, 20, 26, 32});
  CHECK(sizes_between(3, 9) == std::vector<double>{3, 4, 5, 7, 8, 9});
}

TEST_CASE("nothing happens: what three workers can do in the time between two commits") {
  Tale tale = beginning();
  for (int v = 0; v <= 10; ++v) commit(tale, 1 + v, v);
  const auto g = goodput_of(tale.story(), {}, kTen, {{0, 3}}, 10);
  CHECK(g.reached);
  CHECK(g.from_t == 1);
  CHECK(g.to_t == 11);
  CHECK(g.committed == 20);  // the step that ends at the first commit began before
  CHECK(g.worker_s == doctest::Approx(30));
  CHECK(g.possible == doctest::Approx(300));
  CHECK(g.trace_possible == doctest::Approx(300));
  CHECK(g.value() == doctest::Approx(20.0 / 300));
}

TEST_CASE("the window ends with the first commit after the stretch, so that no pause is cut off") {
  Tale tale = beginning();
  for (int v = 0; v <= 2; ++v) commit(tale, 1 + v, v);
  commit(tale, 9, 3);
  commit(tale, 10, 4);
  const auto g = goodput_of(tale.story(), {}, kTen, {{0, 3}}, 5);
  CHECK(g.to_t == 9);
  CHECK(g.committed == 6);
  CHECK(g.worker_s == doctest::Approx(24));
}

TEST_CASE("a killed worker is present until the kill, the others while they wait for the epoch") {
  Tale tale = beginning();
  for (int v = 0; v <= 2; ++v) commit(tale, 1 + v, v);
  tale.worker(3.6, 3, "lost").epoch(4.02, "1.2", "1.1", "forced", 3, {1, 2});  // resume_ms 20
  for (int v = 3; v <= 6; ++v) commit(tale, 1 + v, v, "1.2");
  const auto g =
      goodput_of(tale.story(), {deed(&chaos::faults::kKill, 3.5, 3)}, kTen, {{0, 3}, {2.5, 2}}, 6);
  CHECK(present_at(g, 3.49) == 3);
  CHECK(present_at(g, 3.5) == 2);
  CHECK(g.worker_s == doctest::Approx(2.5 * 3 + 3.5 * 2));
  CHECK(g.trace_possible == doctest::Approx(g.possible));
}

TEST_CASE("a worker of which nobody knows that it is gone is present until an epoch without it") {
  Tale tale = beginning();
  for (int v = 0; v <= 2; ++v) commit(tale, 1 + v, v);
  tale.epoch(4.02, "1.2", "1.1", "forced", 3, {1, 2});
  for (int v = 3; v <= 6; ++v) commit(tale, 1 + v, v, "1.2");
  const auto g = goodput_of(tale.story(), {}, kTen, {{0, 3}}, 6);
  CHECK(g.worker_s == doctest::Approx(3 * 3 + 3 * 2));  // the plan was committed at 4.00
}

// The epoch's line comes with the first step in it; the members changed with the commit before.
TEST_CASE("a joiner is present from the commit at which everybody switched") {
  Tale tale = beginning();
  for (int v = 0; v <= 2; ++v) commit(tale, 1 + v, v);
  tale.worker(2.2, 4, "joined").epoch(3.9, "1.2", "1.1", "prepared", -1, {1, 2, 3, 4});
  for (int v = 3; v <= 6; ++v) commit(tale, 1 + v, v, "1.2");
  const auto g = goodput_of(tale.story(), {}, kTen, {{0, 3}, {1, 4}}, 6);
  CHECK(present_at(g, 2.9) == 3);
  CHECK(present_at(g, 3.0) == 4);
  CHECK(g.worker_s == doctest::Approx(2 * 3 + 4 * 4));
  CHECK(g.trace_possible == doctest::Approx(10 * (1 * 3 + 5 * 4)));  // it took a second to come in
}

TEST_CASE("a prepared epoch without a step never was") {
  Tale tale = beginning();
  for (int v = 0; v <= 2; ++v) commit(tale, 1 + v, v);
  tale.epoch(3.5, "1.2", "1.1", "prepared", -1, {1, 2, 3, 4});
  for (int v = 3; v <= 6; ++v) commit(tale, 1 + v, v);
  const auto g = goodput_of(tale.story(), {}, kTen, {{0, 3}}, 6);
  CHECK(g.worker_s == doctest::Approx(18));
}

TEST_CASE("a leaver is present until it has left, at most until its notice ends") {
  Tale tale = beginning();
  for (int v = 0; v <= 2; ++v) commit(tale, 1 + v, v);
  SUBCASE("it left in time") {
    tale.epoch(3.9, "1.2", "1.1", "prepared", -1, {1, 2});
    for (int v = 3; v <= 6; ++v) commit(tale, 1 + v, v, "1.2");
    const auto g = goodput_of(tale.story(), {leave(2.5, 3, 3)}, kTen, {{0, 3}, {4.5, 2}}, 6);
    CHECK(g.worker_s == doctest::Approx(2 * 3 + 4 * 2));
    CHECK(g.trace_possible == doctest::Approx(10 * (4.5 * 3 + 1.5 * 2)));
  }
  SUBCASE("it was taken away") {
    tale.epoch(4.02, "1.2", "1.1", "forced", 3, {1, 2});
    for (int v = 3; v <= 6; ++v) commit(tale, 1 + v, v, "1.2");
    const auto g = goodput_of(tale.story(), {leave(2.5, 3, 0.75)}, kTen, {{0, 3}}, 6);
    CHECK(g.worker_s == doctest::Approx(2.25 * 3 + 3.75 * 2));
  }
}

TEST_CASE("a fault that was held back takes nobody away") {
  Tale tale = beginning();
  for (int v = 0; v <= 4; ++v) commit(tale, 1 + v, v);
  Deed held = deed(&chaos::faults::kKill, 2, 3);
  held.outcome = Deed::Outcome::kHeldBack;
  CHECK(goodput_of(tale.story(), {held}, kTen, {{0, 3}}, 4).worker_s == doctest::Approx(12));
}

TEST_CASE("steps that are done again after a restart count once") {
  Tale tale = beginning();
  for (int v = 0; v <= 3; ++v) commit(tale, 1 + v, v);
  tale.restart(4.1, 2, "1.1");
  for (int v = 2; v <= 6; ++v) commit(tale, 3 + v, v);
  const auto g = goodput_of(tale.story(), {}, kTen, {{0, 3}}, 8);
  CHECK(g.committed == 12);
}

TEST_CASE(
    "a job that ends early: not reached; the time after a failure counts, after its end not") {
  Tale tale = beginning();
  for (int v = 0; v <= 4; ++v) commit(tale, 1 + v, v);
  SUBCASE("done") {
    const auto g = goodput_of(tale.done().story(), {}, kTen, {{0, 3}}, 10);
    CHECK_FALSE(g.reached);
    CHECK(g.worker_s == doctest::Approx(12));
  }
  SUBCASE("failed") {
    const auto g = goodput_of(tale.failed(5.5, 4).story(), {}, kTen, {{0, 3}}, 10);
    CHECK_FALSE(g.reached);
    CHECK(g.worker_s == doctest::Approx(30));
  }
  SUBCASE("no step at all") {
    CHECK(goodput_of(beginning().story(), {}, kTen, {{0, 3}}, 10).value() == 0);
  }
}

TEST_CASE("the rate of so many workers lies between those that were measured") {
  const std::vector<Rate> rates = {{8, 30}, {2, 42}};
  CHECK(rate_at(rates, 1) == 42);
  CHECK(rate_at(rates, 2) == 42);
  CHECK(rate_at(rates, 5) == 36);
  CHECK(rate_at(rates, 8) == 30);
  CHECK(rate_at(rates, 100) == 30);
  CHECK(rate_at({}, 3) == 0);
  CHECK(possible({{0, 2}, {10, 5}, {20, 0}}, rates, 5, 25) ==
        doctest::Approx(5 * 2 * 42 + 10 * 5 * 36));
}

// A step of 30 and one of 60 ms take 45 ms each on average.
TEST_CASE("a rate measured before and after the run is that of the mean time") {
  const auto rates = between({{2, 1000.0 / 30}, {3, 10}}, {{2, 1000.0 / 60}, {3, 10}});
  REQUIRE(rates.size() == 2);
  CHECK(rates[0].workers == 2);
  CHECK(rates[0].per_worker == doctest::Approx(1000.0 / 45));
  CHECK(rates[1].per_worker == doctest::Approx(10));
  CHECK(between({{4, 7}}, {}).front().per_worker == 7);
}

// Three workers, two micro-batches a step. Commits at 1.0, 1.1, ... 1.5 in the first epoch; then
// worker 3 is gone, the first step takes 0.6 s and every later one 0.2 s. Of those epochs the third
// and later steps took 0.1 and 0.2 s.
TEST_CASE("beside it stands the pace of the run's own steps in which nothing changed") {
  Tale tale = beginning();
  for (int v = 0; v <= 5; ++v) commit(tale, 1 + 0.1 * v, v);
  tale.epoch(1.6, "1.2", "1.1", "forced", 6, {1, 2});
  double t = 2.1;
  for (int v = 6; v <= 10; ++v, t += 0.2) tale.step(t, v, {1, 2}, 2);
  const auto goodput =
      goodput_of(tale.story(), {deed(&chaos::faults::kKill, 1.55, 3)}, kTen, {{0, 3}}, 1.8);
  REQUIRE(goodput.own_rates.size() == 2);
  CHECK(goodput.own_rates[0].workers == 2);
  CHECK(goodput.own_rates[0].per_worker == doctest::Approx(2 / 0.2 / 2));
  CHECK(goodput.own_rates[1].workers == 3);
  CHECK(goodput.own_rates[1].per_worker == doctest::Approx(2 / 0.1 / 3));
  // Three for 0.55 s, two for 1.35 s: 11 + 13.5 were possible, ten steps of two were committed.
  CHECK(goodput.committed == 20);
  CHECK(goodput.own_possible == doctest::Approx(0.55 * 20 + 1.35 * 10));
  CHECK(goodput.of_own() == doctest::Approx(20 / 24.5));
  SUBCASE("without such a step there is none") {
    Tale brief = beginning();
    commit(brief, 1, 0);
    commit(brief, 1.1, 1);
    CHECK(goodput_of(brief.story(), {}, kTen, {{0, 3}}, 0.1).of_own() == 0);
  }
}

}  // namespace starling::judge
