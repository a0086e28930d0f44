// Who holds what, and which copies are made in which order.

#include "elastic/membership/placement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

namespace starling::elastic {
namespace {

bool contains(const std::vector<Rank>& ranks, Rank r) {
  return std::find(ranks.begin(), ranks.end(), r) != ranks.end();
}

// Members 0, 1, 2 stay, 3 leaves; segments 0 to 2 are at the leaver alone, the others at 0 and 1.
PlacementInput with_a_leaver(std::uint32_t budget) {
  PlacementInput in;
  in.segments = 6;
  in.bucket_segments = 6;
  in.replicas = 2;
  in.budget = budget;
  in.members.resize(4);
  in.members[3].draining = true;
  in.copies.assign(4, std::vector<bool>(in.segments));
  for (SegmentId s = 0; s < in.segments; ++s)
    for (const Rank r : s < 3 ? std::vector<Rank>{3} : std::vector<Rank>{0, 1})
      in.copies[r][s] = true;
  return in;
}

constexpr std::uint32_t kPlacedSegments = 480;

// Eight members hold three copies of everything, and eight join.
PlacementInput with_eight_joiners() {
  PlacementInput before;
  before.segments = kPlacedSegments;
  before.replicas = 2;
  before.budget = kPlacedSegments;
  before.members.resize(8);
  const auto holders = target_holders(before);
  PlacementInput in = before;
  in.members = ring_order(before.members, std::vector<Member>(8));
  for (Rank r = 0; r < 16; ++r) {
    auto& copies = in.copies.emplace_back(kPlacedSegments);
    for (SegmentId s = 0; s < kPlacedSegments; ++s)
      copies[s] = r % 2 == 0 && contains(holders[s], Rank(r / 2));
  }
  return in;
}

}  // namespace

TEST_CASE("placement: joiners come evenly between those who are there") {
  const auto ring = [](std::vector<int> there, std::vector<int> joining) {
    return ring_order(std::move(there), std::move(joining));
  };
  CHECK(ring({0, 1, 2, 3}, {}) == std::vector{0, 1, 2, 3});
  CHECK(ring({0, 1, 2, 3}, {4}) == std::vector{0, 1, 4, 2, 3});
  CHECK(ring({0, 1, 2, 3}, {4, 5}) == std::vector{0, 4, 1, 2, 5, 3});
  CHECK(ring({0, 1, 2, 3}, {4, 5, 6, 7}) == std::vector{0, 4, 1, 5, 2, 6, 3, 7});
  CHECK(ring({0, 1}, {2, 3, 4, 5, 6}) == std::vector{0, 2, 3, 4, 1, 5, 6});
  CHECK(ring({}, {4, 5}) == std::vector{4, 5});
}

TEST_CASE("placement: with twice as many members half of the copies move, which is the least") {
  std::uint32_t moved = 0;
  for (const Move& move : place(with_eight_joiners()).moves) {
    CHECK(move.target % 2 == 1);
    moved += move.segments.count;
  }
  CHECK(moved == 3 * kPlacedSegments / 2);
}

// A bucket has fewer segments than a large group has members where a model is large: its segments are.
TEST_CASE("placement: everybody owns an even part, whatever a bucket has") {
  for (const std::uint32_t bucket : {1u, 2u, 3u, 4u, 5u, 8u, 9u, 13u, 21u, 26u, 480u})
    for (std::uint32_t n = 1; n <= 40; ++n) {
      CAPTURE(bucket);
      CAPTURE(n);
      PlacementInput in;
      in.segments = kPlacedSegments;
      in.bucket_segments = bucket;
      in.members.resize(n);
      std::vector<std::uint32_t> owned(n);
      for (const auto& ranks : target_holders(in)) ++owned[ranks.front()];
      const auto [least, most] = std::ranges::minmax(owned);
      CHECK(least >= kPlacedSegments / n - 5);
      CHECK(most <= kPlacedSegments / n + 5);
    }
}

TEST_CASE("placement: as little moves to a joiner with many buckets as with one") {
  for (const std::uint32_t bucket : {1u, 4u, 480u}) {
    CAPTURE(bucket);
    PlacementInput in;
    in.segments = in.budget = kPlacedSegments;
    in.bucket_segments = bucket;
    in.replicas = 0;
    in.members.resize(4);
    const auto before = target_holders(in);
    in.members = ring_order(in.members, std::vector<Member>(1));  // 0 1 4 2 3
    for (Rank r = 0; r < 5; ++r) {
      auto& copies = in.copies.emplace_back(kPlacedSegments);
      const Rank was[] = {0, 1, 9, 2, 3};
      for (SegmentId s = 0; s < kPlacedSegments; ++s) copies[s] = before[s].front() == was[r];
    }
    std::uint32_t moved = 0;
    for (const Move& move : place(in).moves) moved += move.segments.count;
    CHECK(moved <= kPlacedSegments * 3 / 10 + 8);  // one bucket needs 0.3 of all
  }
}

TEST_CASE("placement: what a joiner is to own has few owners until then, in long stretches") {
  const auto placement = place(with_eight_joiners());
  std::vector<std::uint32_t> owned(16);
  std::uint32_t stretches = 1;
  for (SegmentId s = 0; s < kPlacedSegments; ++s) {
    ++owned[placement.holders[s].front()];
    if (s > 0) stretches += placement.holders[s] != placement.holders[s - 1];
  }
  for (Rank r = 0; r < 16; r += 2) CHECK(owned[r] == kPlacedSegments / 8);
  CHECK(stretches <= 17);
}

TEST_CASE("placement: what only a leaver has is copied once before anything is copied twice") {
  const auto placement = place(with_a_leaver(1));
  REQUIRE(placement.complete);
  std::multiset<SegmentId> first, all;
  for (const Move& move : placement.moves) {
    CHECK(move.target != 3);
    for (const SegmentId s : move.segments) {
      all.insert(s);
      if (move.source == 3 && move.step_offset < 3) first.insert(s);
    }
  }
  CHECK(first == std::multiset<SegmentId>{0, 1, 2});
  CHECK(all == std::multiset<SegmentId>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5});
}

TEST_CASE("placement: who computes alone holds nothing, and copies are counted among the others") {
  PlacementInput in = with_a_leaver(1);
  in.members[1].role = WorkerRole::kCompute;
  in.members[2].role = WorkerRole::kHold;
  in.members[3].draining = false;
  in.copies.assign(4, std::vector<bool>(in.segments));
  in.copies[0].assign(in.segments, true);
  for (const auto& ranks : target_holders(in)) CHECK_FALSE(contains(ranks, 1));
  const auto placement = place(in);
  REQUIRE(placement.complete);
  std::multiset<Rank> targets;
  for (const Move& move : placement.moves) targets.insert(move.target);
  CHECK(targets.count(1) == 0);
  CHECK(targets.count(2) > 0);
  CHECK(wanted_replicas(in.members, 3) == 2);
  in.members[2].role = WorkerRole::kCompute;
  in.members[3].draining = true;
  CHECK(wanted_replicas(in.members, 3) == 0);
}

TEST_CASE("placement: without a member that holds there is no place for anything") {
  PlacementInput in = with_a_leaver(1);
  for (Member& m : in.members) m.role = WorkerRole::kCompute;
  CHECK_FALSE(place(in).complete);
  CHECK(role_lacking(in.members) == WorkerRole::kHold);
  for (Member& m : in.members) m.role = WorkerRole::kHold;
  CHECK(role_lacking(in.members) == WorkerRole::kCompute);
  in.members[3].role = WorkerRole::kCompute;
  CHECK_FALSE(role_lacking(in.members).has_value());
}

TEST_CASE("placement: no source sends more than the budget in one step") {
  for (const std::uint32_t budget : {1u, 2u, 5u}) {
    std::map<std::pair<Rank, std::uint32_t>, std::uint32_t> sent;
    for (const Move& move : place(with_a_leaver(budget)).moves)
      sent[{move.source, move.step_offset}] += move.segments.count;
    for (const auto& [at, count] : sent) CHECK(count <= budget);
  }
}

}  // namespace starling::elastic
