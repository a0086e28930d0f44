#pragma once
// Which rank holds which segment (docs/design.md, section 6, Placement): a pure function of the
// job, the present copies, the members, r and the budget, so that every leader finds the same.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/wire/messages.h"

namespace starling::elastic {

struct PlacementInput {
  std::uint32_t segments = 0;
  std::uint32_t bucket_segments = 0;      // segments of a bucket; 0 = one bucket
  std::uint32_t replicas = 2;             // r, wanted
  std::uint32_t budget = 64;              // segments that a source sends in one step
  std::vector<Member> members;            // of the new epoch, by rank
  std::vector<std::vector<bool>> copies;  // [rank][segment]: a current copy
};

struct Placement {
  std::vector<std::vector<Rank>> holders;  // owner first; only ranks with a current copy (R13)
  std::vector<Move> moves;                 // missing copies first, then balance
  bool complete = true;                    // every segment has at least one current copy
};

// kCompute: none of these members computes. kHold: none holds state. Nothing: a plan can have them.
std::optional<WorkerRole> role_lacking(const std::vector<Member>& members);

// The target: owned parts of each bucket, and of all buckets together, spread evenly over the ranks that
// hold and do not drain, replicas of what rank i of these owns on i+1 .. i+r, other failure domains first. Some member
// holds (checked).
std::vector<std::vector<Rank>> target_holders(const PlacementInput& in);

// Finds holders for now, from the copies that are there, and the moves that lead to the target.
Placement place(const PlacementInput& in);

// Orders members by new rank, which is the place in the ring of holders: present members keep their
// order, and joiners come evenly between them. Then hardly more copies move than have to: with as
// many joiners as members and r = 2, half of them instead of three quarters (joiners last).
template <typename T>
std::vector<T> ring_order(std::vector<T> there, std::vector<T> joining) {
  const std::size_t n = there.size(), k = joining.size();
  std::vector<T> ring;
  std::size_t next = 0;
  for (std::size_t i = 0; i < n; ++i) {
    ring.push_back(std::move(there[i]));
    // Joiner j belongs at (j + 1/2) / k of the ring.
    for (; next < k && (2 * next + 1) * n <= 2 * k * (i + 1); ++next)
      ring.push_back(std::move(joining[next]));
  }
  for (; next < k; ++next) ring.push_back(std::move(joining[next]));  // no member is there yet
  return ring;
}

// Number of copies wanted besides the owner's: r, at most one less than the members that hold and
// stay.
std::uint32_t wanted_replicas(const std::vector<Member>& members, std::uint32_t replicas);

}  // namespace starling::elastic
