#include "core/text/sampling.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace starling {
namespace {

std::vector<int> drawn(const SamplingRule& rule, const std::vector<float>& logits, int times) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < times; ++i)
    ++counts[sample_token(rule, logits, 0, static_cast<std::uint64_t>(i))];
  return counts;
}

}  // namespace

TEST_CASE("sampling: temperature 0 is the most likely token, of equal ones the first") {
  const std::vector<float> logits{1, 3, -2, 3, std::nanf("")};
  CHECK(sample_token({.temperature = 0}, logits, 0, 0) == 1);
  CHECK(sample_token({.temperature = 0, .seed = 9}, logits, 3, 8) == 1);
}

TEST_CASE("sampling: tokens come as often as their logits say") {
  const std::vector<float> logits{0, std::log(2.0f), std::log(5.0f),
                                  -std::numeric_limits<float>::infinity()};
  const int times = 80'000;
  const auto counts = drawn({}, logits, times);
  const double expected[] = {1.0 / 8, 2.0 / 8, 5.0 / 8, 0};
  for (int i = 0; i < 4; ++i)
    CHECK(std::abs(counts[static_cast<std::size_t>(i)] / double(times) - expected[i]) < 0.01);
  // At temperature 1/2 the ratios are squared.
  const auto colder = drawn({.temperature = 0.5}, logits, times);
  CHECK(std::abs(colder[1] / double(colder[0]) - 4) < 0.4);
  CHECK(std::abs(colder[2] / double(colder[1]) - 6.25) < 0.4);
}

TEST_CASE("sampling: top_k and top_p leave the most likely tokens") {
  const std::vector<float> logits{0, std::log(2.0f), std::log(5.0f), std::log(2.0f)};  // of 10
  CHECK(drawn({.top_k = 1}, logits, 100) == std::vector<int>{0, 0, 100, 0});
  const auto two = drawn({.top_k = 2}, logits, 1000);
  CHECK((two[0] == 0 && two[1] > 0 && two[2] > 0 && two[3] == 0));  // of equal ones the first
  CHECK(drawn({.top_p = 0.4}, logits, 100) == std::vector<int>{0, 0, 100, 0});
  const auto most = drawn({.top_p = 0.65}, logits, 1000);
  CHECK((most[0] == 0 && most[1] > 0 && most[2] > 0 && most[3] == 0));
  CHECK(drawn({.top_p = 0}, logits, 100) == std::vector<int>{0, 0, 100, 0});
}

TEST_CASE("sampling: a draw is a function of seed, text and place") {
  const std::vector<float> logits(100, 0.0f);
  const SamplingRule rule{.seed = 5};
  std::vector<std::uint32_t> one, again, other_text, other_seed;
  for (std::uint64_t i = 0; i < 50; ++i) {
    one.push_back(sample_token(rule, logits, 0, i));
    again.push_back(sample_token(rule, logits, 0, i));
    other_text.push_back(sample_token(rule, logits, 1, i));
    other_seed.push_back(sample_token({.seed = 6}, logits, 0, i));
  }
  CHECK(one == again);
  CHECK(one != other_text);
  CHECK(one != other_seed);
}

}  // namespace starling
