#pragma once
// Suspicions concludes from differences between contributions which worker computes wrongly
// (docs/design.md, section 8). Pure.
//
// Threads: none; a value of its leader. A new leader hears of the same differences again.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/wire/messages.h"

namespace starling::elastic {

class Suspicions {
 public:
  struct Found {
    std::optional<std::uint64_t> wrong;  // counter of the incarnation that is known to be wrong
  };
  // Takes a difference that incarnation `by` (a counter) has found. Nothing: it was taken before.
  // Wrong is
  //   a finder whose two contributions differ, or whose second one is the row's;
  //   of two workers that each agree with themselves the one that also differs from a third worker;
  //   else none.
  std::optional<Found> take(std::uint64_t by, const Difference& difference);
  std::uint64_t count() const { return count_; }

 private:
  static constexpr std::size_t kKnown = 4096;
  using Key = std::tuple<std::uint64_t, Version, MicroBatch>;

  std::set<Key> known_;
  std::deque<Key> order_;  // of known_
  // By worker: the workers from which it differs, each agreeing with itself.
  std::map<std::uint64_t, std::set<std::uint64_t>> differ_;
  std::uint64_t count_ = 0;
};

}  // namespace starling::elastic
