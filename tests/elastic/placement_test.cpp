// Who holds what, and which copies are made in which order.

#include "elastic/membership/placement.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

namespace starling::elastic {
namespace {

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

}  // namespace

TEST_CASE("placement: what only a leaver has is copied once before anything is copied twice") {
  const auto placement = place(with_a_leaver(1));
  REQUIRE(placement.complete);
  CHECK(placement.exposed == 6);
  std::multiset<SegmentId> first, all;
  for (const Move& move : placement.moves) {
    CHECK(move.target != 3);
    for (SegmentId s = move.segments.first; s < move.segments.first + move.segments.count; ++s) {
      all.insert(s);
      if (move.source == 3 && move.step_offset < 3) first.insert(s);
    }
  }
  CHECK(first == std::multiset<SegmentId>{0, 1, 2});
  CHECK(all == std::multiset<SegmentId>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5});
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
