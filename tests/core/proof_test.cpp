#include "core/base/proof.h"

#include <doctest/doctest.h>

#include <set>

#include "core/base/side_entry.h"

namespace starling {
namespace {

// Goal: R3. Every way to take or repeat micro-batches that leaves the number right is caught by the
// hashes. Method: all multisets of M of M micro-batches.
TEST_CASE("proof: only each micro-batch once gives the complete lanes (R3)") {
  constexpr std::uint32_t M = 5;
  const ProofLanes complete = complete_lanes(/*seed=*/11, /*step=*/3, M);
  CHECK(complete.micro_batches == M);
  int matches = 0;
  for (int code = 0; code < 5 * 5 * 5 * 5 * 5; ++code) {
    ProofLanes lanes;
    int seen = 0, rest = code;
    for (MicroBatch i = 0; i < M; ++i, rest /= 5) {
      const auto m = static_cast<MicroBatch>(rest % 5);
      seen |= 1 << m;
      lanes += {.micro_batches = 1, .micro_batch_hashes = micro_batch_hash(11, 3, m)};
    }
    const bool match = accepted(lanes, complete, 0, 0);
    CHECK(match == (seen == 0b11111));
    matches += match;
  }
  CHECK(matches == 120);  // the orders
}

// Method: all single bits of sums, and what a transposition and an exchange of bits between elements
// would do.
TEST_CASE("proof: the weighted sum is linear, and no single wrong element leaves it as it was") {
  for (std::uint32_t i = 0; i < 100'000; ++i) REQUIRE(weight_of(i) % 2 == 1);
  const auto weigh = [](std::span<const std::int32_t> values) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < values.size(); ++i)
      sum += static_cast<std::uint64_t>(std::int64_t{values[i]} * weight_of(i));
    return sum;
  };
  std::vector<std::int32_t> a, b, both;
  for (int i = 0; i < 600; ++i) {
    a.push_back(i * 7919 - 100'000);
    b.push_back(50'000 - i * i);
    both.push_back(a.back() + b.back());
  }
  CHECK(weigh(a) + weigh(b) == weigh(both));
  for (std::size_t i = 0; i < both.size(); ++i)
    for (int bit = 0; bit < 32; ++bit) {
      auto flipped = both;
      flipped[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(both[i]) ^ 1u << bit);
      REQUIRE(weigh(flipped) != weigh(both));
    }
  for (std::size_t i = 1; i < both.size(); ++i) {
    auto swapped = both;
    std::swap(swapped[i - 1], swapped[i]);
    REQUIRE(weigh(swapped) != weigh(both));
  }
}

TEST_CASE("proof: each of the four lanes of R3 is compared") {
  const ProofLanes complete = complete_lanes(1, 2, 8);
  ProofLanes total = complete;
  total.side_entries = 3;
  total.side_hashes = 77;
  CHECK(accepted(total, complete, 3, 77));
  CHECK_FALSE(accepted(total, complete, 2, 77));
  CHECK_FALSE(accepted(total, complete, 3, 78));
  ++total.micro_batches;
  CHECK_FALSE(accepted(total, complete, 3, 77));
  total = complete;
  ++total.micro_batch_hashes;
  CHECK_FALSE(accepted(total, complete, 0, 0));
}

TEST_CASE("proof: hashes differ by seed, step, micro-batch and by each bit of a side entry") {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    for (Version step = 0; step < 8; ++step)
      for (MicroBatch m = 0; m < 8; ++m) hashes.insert(micro_batch_hash(seed, step, m));
  CHECK(hashes.size() == 512);

  SideEntry entry;
  std::set<std::uint64_t> sides{side_entry_hash(entry)};
  entry.block = 1;
  sides.insert(side_entry_hash(entry));
  entry.micro_batch = 1;
  sides.insert(side_entry_hash(entry));
  for (float& value : entry.values) {
    value = -0.0f;
    sides.insert(side_entry_hash(entry));
  }
  CHECK(sides.size() == 3 + kBlock);
}

}  // namespace
}  // namespace starling
