#include "tools/bench/figures.h"

#include <doctest/doctest.h>

#include "tests/judge/stories.h"

namespace starling::bench {
namespace {

// Steps told at these seconds, in epoch 1.1 of `world` members.
judge::Story steps_at(const std::vector<std::pair<double, std::uint32_t>>& told) {
  judge::Story story;
  story.start.micro_batches = 64;
  for (const auto& [t, world] : told) story.step_lines.push_back({{{}, {1, 1}, world}, t});
  return story;
}

}  // namespace

TEST_CASE("a quantile is one of the values, and at least so many are not above it") {
  CHECK(quantile({}, 0.5) == 0);
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({4, 1, 2, 3}, 0.5) == 2);
  CHECK(quantile({4, 1, 2, 3}, 0.99) == 4);
  CHECK(quantile({4, 1, 2, 3}, 0) == 1);
}

TEST_CASE("steps count as undisturbed where the two before them had as many members") {
  const auto story = steps_at({{0, 4}, {1, 4}, {2, 4}, {5, 3}, {5.5, 3}, {6, 3}, {7, 4}});
  CHECK(median_step_ms(story, 4) == doctest::Approx(1000));
  CHECK(median_step_ms(story, 3) == doctest::Approx(500));
  CHECK(median_step_ms(story, 8) == 0);
}

// The worker is killed at 2.5, within the step that its group still commits at 3 with all four.
TEST_CASE("the gap of a loss is before the first step without the lost, and the longest of four") {
  const auto story = steps_at({{1, 4}, {2, 4}, {3, 4}, {5, 3}, {6, 3}, {9, 3}, {10, 3}, {20, 3}});
  const Gap gap = gap_after(story, 2.5, 3);
  CHECK(gap.to_world == doctest::Approx(2000));
  CHECK(gap.longest == doctest::Approx(3000));  // that before 20 is the fifth
  CHECK(gap_after(story, 2.5, 2).to_world == 0);
  CHECK(gap_after(story, 30, 3).longest == 0);
}

// 64 micro-batches: 8 each for 8 workers, 4 for 16, 6 for 12, 16 for 4.
TEST_CASE("an undisturbed step of a number in between lies on the line of what is computed") {
  auto story = steps_at({{0, 8}, {0.17, 8}, {0.34, 8}});
  for (const double t : {1.0, 1.09, 1.18}) story.step_lines.push_back({{{}, {1, 1}, 16}, t});
  const QuietSteps quiet(story, {{0, 3}, {4, 6}});
  CHECK(quiet.ms(8) == doctest::Approx(170));
  CHECK(quiet.ms(16) == doctest::Approx(90));
  CHECK(quiet.ms(12) == doctest::Approx(130));
  CHECK(quiet.ms(4) == doctest::Approx(330));
  CHECK(quiet.ms(64) == doctest::Approx(30));
  CHECK(quiet.ms(0) == 0);

  const QuietSteps one(story, {{0, 3}});
  CHECK(one.ms(8) == doctest::Approx(170));
  CHECK(one.ms(16) == 0);
}

TEST_CASE("steps of a change are compared with undisturbed ones of as many workers") {
  auto story = steps_at({{0, 8}, {1, 8}, {2, 8}, {3.5, 8}});
  story.step_lines.push_back({{{}, {1, 2}, 16}, 4.1});
  story.step_lines.push_back({{{}, {1, 3}, 16}, 4.7});
  story.epochs = {{{{1, 1}, PlanKind::kPrepared}, 0},
                  {{{1, 2}, PlanKind::kPrepared}, 4.1},
                  {{{1, 3}, PlanKind::kForced}, 4.6}};
  const QuietSteps quiet(story, {{0, 3}, {5, 6}});
  const ChangeFigures figures = change_figures(story, {3, 6}, quiet);
  REQUIRE(figures.ratios.size() == 3);
  CHECK(figures.ratios[0] == doctest::Approx(1.5));
  CHECK(figures.ratios[1] == doctest::Approx(1));
  CHECK(figures.epochs == 2);
  CHECK(figures.forced == 1);
  CHECK(change_figures(story, {6, 6}, quiet).ms.empty());
}

}  // namespace starling::bench
