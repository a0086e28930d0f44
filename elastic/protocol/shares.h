#pragma once
// Shares says which member computes which micro-batches of a step (docs/design.md, section 5,
// Shares): pure functions of what every member knows, in integers, so that all find the same.
//
// The shares of an epoch's first step are in its plan. Those of every later step follow from the
// shares and the votes of the step before it, which every member of the epoch has.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/wire/messages.h"

namespace starling::elastic {

// The longest time of a micro-batch that dealing knows, about 73 minutes; longer times count as
// this, so that the time of a whole step fits into 64 bits.
inline constexpr std::uint64_t kMicroBatchNsMax = std::uint64_t{1} << 42;

// Capacity is what is known of one member, by rank.
struct Capacity {
  std::uint64_t micro_batch_ns = 0;  // what its next one takes; 0: not known
  std::uint32_t left = 0;            // micro-batches that it has to do already
  bool computes = true;              // else nothing is dealt to it
};

// Which ranks of a world have a micro-batch in these shares: the contributors of the step, by rank.
// Nobody else adds to its sums.
std::vector<bool> contributors_of(const std::vector<Rank>& shares, std::size_t world);

// Deals `count` micro-batches one by one, each to the member that would have done it first; the
// lower rank if several would. So the last is done as early as can be. Returns the rank of each.
// Some member computes (checked).
//   - Where some speeds are known, a member of unknown speed gets one micro-batch, before the
//     others, to be measured by it; none if it has something to do already.
//   - Where none is known, all count as equally fast.
// Cost: count * log(members).
std::vector<Rank> deal(const std::vector<Capacity>& members, std::uint32_t count);

// Shares of a step of which nothing is done yet: rank of each micro-batch, in runs by rank. Equal
// up to one where all speeds are known and others would make the step shorter by a twentieth at
// most.
std::vector<Rank> first_shares(const std::vector<Capacity>& members, std::uint32_t micro_batches);

// Shares of the step after the one that was shared like `before` (rank of each micro-batch). Every
// member's number of micro-batches stays unless equal ones will do as above, computing becomes
// shorter by a tenth of what is possible, or a member is to be measured.
// So noise moves nothing.
std::vector<Rank> next_shares(const std::vector<Rank>& before,
                              const std::vector<Capacity>& members);

// Speedometer says how long a micro-batch takes at this worker: the median of the last few, so that
// one that was interrupted counts for nothing, and a change of pace shows after five. Times are of
// computing alone, divided by the number of micro-batches that are computed at once.
class Speedometer {
 public:
  // `probe_after` >= 1: see for_vote().
  explicit Speedometer(std::uint32_t probe_after) : probe_after_(probe_after) {}

  void took(std::uint64_t micro_batch_ns);
  std::uint64_t micro_batch_ns() const;  // 0: not known

  // The time that the vote of a step says; `worked`: in that step. A worker that had nothing to do
  // for probe_after times what a micro-batch takes forgets what it knew and is measured again, so
  // that one that was slow once is not left out for good. Being measured by one micro-batch costs
  // the group at most 1 / probe_after of its time.
  std::uint64_t for_vote(bool worked, std::uint64_t now_ms);

 private:
  std::uint32_t probe_after_;
  std::deque<std::uint64_t> last_;  // newest last
  std::uint64_t worked_ms_ = 0;     // vote of the last step in which it did something
};

}  // namespace starling::elastic
