// Shares by measured speed (docs/design.md, section 5, Shares): what deal() promises against simple
// second implementations, what noise and changes of pace do, and how a worker measures itself.

#include "elastic/protocol/shares.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "core/wire/limits.h"

namespace starling::elastic {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;

// `times`: the same members again.
std::vector<Capacity> of_ms(const std::vector<std::uint64_t>& ms, std::size_t times = 1) {
  std::vector<Capacity> members;
  for (; times > 0; --times)
    for (const std::uint64_t each : ms) members.push_back({each * kNsPerMs, 0});
  return members;
}

std::vector<std::uint32_t> counts(const std::vector<Rank>& shares, std::size_t world) {
  std::vector<std::uint32_t> n(world);
  for (const Rank r : shares) ++n.at(r);
  return n;
}

std::vector<std::uint32_t> first(const std::vector<Capacity>& members, std::uint32_t m) {
  return counts(first_shares(members, m), members.size());
}

std::vector<std::uint32_t> dealt(const std::vector<Capacity>& members, std::uint32_t m) {
  return counts(deal(members, m), members.size());
}

std::uint64_t end_of(const std::vector<std::uint32_t>& n, const std::vector<Capacity>& members) {
  std::uint64_t end = 0;
  for (std::size_t r = 0; r < n.size(); ++r) end = std::max(end, n[r] * members[r].micro_batch_ns);
  return end;
}

using Counts = std::vector<std::uint32_t>;

TEST_CASE("shares: by speed, in runs by rank") {
  CHECK(first_shares(of_ms({20, 10, 20}), 8) == std::vector<Rank>{0, 0, 1, 1, 1, 1, 2, 2});
  // Eight workers, 20 ms: what one that is twice or ten times slower gets.
  CHECK(first(of_ms({20, 20, 20, 40, 20, 20, 20, 20}), 64) == Counts{9, 9, 9, 4, 9, 8, 8, 8});
  CHECK(first(of_ms({20, 20, 20, 200, 20, 20, 20, 20}), 64) == Counts{10, 9, 9, 0, 9, 9, 9, 9});
  CHECK(first(of_ms({20, 20, 20, 200, 20, 20, 20, 20}), 8) == Counts{2, 1, 1, 0, 1, 1, 1, 1});
}

TEST_CASE("shares: equal up to one where no speed is known") {
  for (std::uint32_t world = 1; world <= 9; ++world)
    for (std::uint32_t m = 0; m <= 20; ++m) {
      const auto n = first(std::vector<Capacity>(world), m);
      CHECK(std::is_sorted(n.rbegin(), n.rend()));
      CHECK(n.front() - n.back() <= 1);
    }
}

TEST_CASE(
    "shares: who holds alone gets none, known speeds or not, and keeps nobody from a change") {
  auto members = of_ms({20, 20, 20});
  members[1] = {.computes = false};
  CHECK(first(members, 8) == Counts{4, 0, 4});
  members[2].micro_batch_ns = 0;  // to be measured
  CHECK(first(members, 8) == Counts{7, 0, 1});
  members[2].micro_batch_ns = 60 * kNsPerMs;
  const auto shares = first_shares(members, 8);
  CHECK(counts(shares, 3) == Counts{6, 0, 2});
  CHECK(next_shares(shares, members) == shares);
  CHECK(contributors_of(shares, 3) == std::vector<bool>{true, false, true});
  CHECK(first({{.computes = false}, {}}, 3) == Counts{0, 3});
}

TEST_CASE("shares: one micro-batch for who is to be measured, while there are any") {
  CHECK(first(of_ms({20, 0, 20}), 9) == Counts{4, 1, 4});
  CHECK(first(of_ms({0, 20, 0, 0}), 2) == Counts{1, 0, 1, 0});
  auto members = of_ms({20, 0});
  members[1].left = 1;  // is being measured already
  CHECK(counts(deal(members, 3), 2) == Counts{3, 0});
}

TEST_CASE("shares: who has much left to do gets less of the rest") {
  auto members = of_ms({10, 10, 20});
  members[0].left = 4;
  CHECK(deal(members, 6) == std::vector<Rank>{1, 1, 2, 1, 1, 2});
}

TEST_CASE("shares: the longest times and the largest job do not overflow") {
  std::vector<Capacity> members(3);
  for (auto& m : members) m.micro_batch_ns = ~std::uint64_t{0};
  members[0].left = limits::kMicroBatches;
  const auto n = counts(deal(members, limits::kMicroBatches), 3);
  CHECK(n == Counts{0, limits::kMicroBatches / 2, limits::kMicroBatches / 2});
}

// ---- Properties -------------------------------------------------------------------------------

// Random groups and jobs; unknown members only where asked.
struct Draw {
  explicit Draw(std::uint32_t seed) : dice(seed) {}
  std::uint64_t range(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(dice);
  }
  std::vector<Capacity> members(bool mixed) {
    std::vector<Capacity> all(range(1, 8));
    for (auto& m : all) {
      m.micro_batch_ns = range(1, 100) * 1000;
      if (mixed && range(0, 4) == 0) m.micro_batch_ns = 0;
    }
    return all;
  }
  std::mt19937 dice;
};

// The shortest possible step by trying every end: the smallest time in which all M fit.
std::uint64_t shortest_step(const std::vector<Capacity>& members, std::uint32_t micro_batches) {
  std::vector<std::uint64_t> ends;
  for (const Capacity& m : members)
    for (std::uint32_t n = 1; n <= micro_batches; ++n) ends.push_back(n * m.micro_batch_ns);
  std::sort(ends.begin(), ends.end());
  for (const std::uint64_t end : ends) {
    std::uint64_t fit = 0;
    for (const Capacity& m : members) fit += end / m.micro_batch_ns;
    if (fit >= micro_batches) return end;
  }
  return 0;
}

TEST_CASE("shares: no other shares make the step shorter, or by a twentieth if they are equal") {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Draw draw(seed);
    const auto members = draw.members(/*mixed=*/false);
    const auto m = static_cast<std::uint32_t>(draw.range(1, 40));
    const std::uint64_t shortest = shortest_step(members, m);
    CHECK(end_of(dealt(members, m), members) == shortest);
    const auto shares = first(members, m);
    CHECK((shares == dealt(members, m) || shares == first(of_ms({20}, members.size()), m)));
    CHECK(end_of(shares, members) <= shortest + shortest / 20);
  }
}

TEST_CASE("shares: every micro-batch once, in runs by rank, whatever came before") {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Draw draw(seed);
    const auto members = draw.members(/*mixed=*/true);
    std::vector<Rank> shares(draw.range(1, 40));
    for (Rank& r : shares) r = static_cast<Rank>(draw.range(0, members.size() - 1));
    const auto next = next_shares(shares, members);
    CHECK(next.size() == shares.size());
    CHECK(std::is_sorted(next.begin(), next.end()));
    CHECK(next.back() < members.size());
    CHECK(next_shares(next, members) == next);  // the same votes again change nothing more
  }
}

// One that becomes slower gives micro-batches to others, and no two others change places.
TEST_CASE("shares: when one becomes slower, it gets no more and nobody else less") {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Draw draw(seed);
    auto members = draw.members(/*mixed=*/false);
    const auto m = static_cast<std::uint32_t>(draw.range(1, 40));
    const auto before = dealt(members, m);
    const auto slower = draw.range(0, members.size() - 1);
    members[slower].micro_batch_ns *= draw.range(2, 10);
    const auto after = dealt(members, m);
    for (std::size_t r = 0; r < members.size(); ++r)
      CHECK((r == slower ? after[r] <= before[r] : after[r] >= before[r]));
  }
}

// (1 + x) / (1 - x) < 1.1 for x = 4.7 %.
TEST_CASE("shares: noise of 4.7 % moves nothing, unless to equal shares") {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Draw draw(seed);
    const auto members = draw.members(/*mixed=*/false);
    const auto m = static_cast<std::uint32_t>(draw.range(1, 200));
    const auto shares = first_shares(members, m);
    auto noisy = members;
    for (auto& c : noisy) c.micro_batch_ns = c.micro_batch_ns * draw.range(953, 1047) / 1000;
    const auto next = next_shares(shares, noisy);
    CHECK((next == shares || next == first_shares(of_ms({20}, members.size()), m)));
  }
}

TEST_CASE("shares: who is a few percent faster computes no more") {
  CHECK(first(of_ms({100, 98, 96, 99}), 192) == Counts{48, 48, 48, 48});
  CHECK(first(of_ms({100, 80, 96, 99}), 192) == Counts{45, 56, 46, 45});
  const auto noise = first_shares(of_ms({100, 80, 96, 99}), 192);
  CHECK(next_shares(noise, of_ms({100, 98, 96, 99})) == first_shares(of_ms({20}, 4), 192));
}

TEST_CASE("shares: what makes the step shorter by more than a tenth is done at once") {
  const auto equal = first_shares(std::vector<Capacity>(8), 64);
  const auto slow = of_ms({20, 20, 20, 40, 20, 20, 20, 20});
  const auto shares = next_shares(equal, slow);
  CHECK(shares == first_shares(slow, 64));
  // And back: 9 * 20 ms instead of 8 * 20.
  CHECK(next_shares(shares, of_ms(std::vector<std::uint64_t>(8, 20))) == equal);
}

// ---- Measuring --------------------------------------------------------------------------------

TEST_CASE("speedometer: the median of the last nine") {
  Speedometer speed(/*probe_after=*/32);
  CHECK(speed.micro_batch_ns() == 0);
  speed.took(0);  // not measured
  CHECK(speed.micro_batch_ns() == 0);
  for (int i = 0; i < 9; ++i) speed.took(20);
  speed.took(5000);  // once interrupted
  CHECK(speed.micro_batch_ns() == 20);
  for (int i = 0; i < 4; ++i) speed.took(200);
  CHECK(speed.micro_batch_ns() == 200);
  for (int i = 0; i < 5; ++i) speed.took(20);
  CHECK(speed.micro_batch_ns() == 20);
}

TEST_CASE("speedometer: an idle worker asks to be measured again, after a time that fits") {
  Speedometer speed(/*probe_after=*/32);
  for (int i = 0; i < 9; ++i) speed.took(200 * kNsPerMs);
  CHECK(speed.for_vote(/*worked=*/true, 1000) == 200 * kNsPerMs);
  CHECK(speed.for_vote(/*worked=*/false, 1000 + 32 * 200) == 200 * kNsPerMs);
  CHECK(speed.for_vote(/*worked=*/false, 1001 + 32 * 200) == 0);
  // What it is measured by counts alone.
  speed.took(20 * kNsPerMs);
  CHECK(speed.for_vote(/*worked=*/true, 8000) == 20 * kNsPerMs);
}

}  // namespace
}  // namespace starling::elastic
