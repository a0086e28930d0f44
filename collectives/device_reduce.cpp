#include "collectives/device_reduce.h"

#include <utility>

#include "collectives/frame_sender.h"
#include "collectives/ranges.h"
#include "core/base/check.h"

namespace starling::collectives {

DeviceReduce::DeviceReduce(const Layout& layout, Holders holders, std::vector<bool> contributors,
                           Rank self, DeviceMemory& memory, std::size_t round_bytes)
    : layout_(layout),
      holders_(std::move(holders)),
      contributors_(std::move(contributors)),
      self_(self),
      memory_(memory),
      cut_(layout, *holders_, world(), round_bytes),
      rounds_(cut_.rounds() + 1) {}

// Two ranks list their transfers in the same order: contributions first, then totals.
Result<std::optional<Round>> DeviceReduce::next(std::byte* memory) {
  if (over()) return std::optional<Round>();
  Round round;
  Staging staging(memory);
  to_add_.clear();
  to_take_.clear();
  for (const SegmentRange range : cut_.ranges(self_, round_)) to_add_.push_back({range, {}});
  for (const Rank peer : others(self_, world())) {
    if (contributors_[self_])
      for (const SegmentRange range : cut_.ranges(peer, round_))
        round.sends.push_back({peer, memory_.sums(range), bytes(range)});
    for (const SegmentRange range : added(self_))
      if (holds(*holders_, peer, range))
        round.sends.push_back({peer, memory_.totals(range), bytes(range)});

    for (Received& received : to_add_) {
      if (!contributors_[peer]) break;
      std::byte* const at = staging.take(bytes(received.range));
      received.from.push_back(at);
      round.receives.push_back({peer, at, bytes(received.range)});
    }
    for (const SegmentRange range : added(peer)) {
      if (!holds(*holders_, self_, range)) continue;
      std::byte* const at = staging.take(bytes(range));
      to_take_.push_back({range, {at}});
      round.receives.push_back({peer, at, bytes(range)});
    }
  }
  return std::optional(std::move(round));
}

Result<> DeviceReduce::ended() {
  STARLING_CHECK(!over());
  for (const Received& received : to_add_) memory_.add(received.range, received.from);
  for (const Received& received : to_take_)
    memory_.take_totals(received.range, received.from.front());
  ++round_;
  return ok();
}

}  // namespace starling::collectives
