#include "collectives/device_reduce.h"

#include <algorithm>
#include <utility>

#include "collectives/frame_sender.h"
#include "core/base/check.h"

namespace starling::collectives {

DeviceReduce::DeviceReduce(const Layout& layout, Holders holders, std::vector<bool> contributors,
                           Rank self, DeviceMemory& memory, std::size_t round_bytes)
    : layout_(layout),
      holders_(std::move(holders)),
      contributors_(std::move(contributors)),
      self_(self),
      memory_(memory),
      cut_(cut_rounds(layout, *holders_, world(), round_bytes)) {
  // One round more than there are pieces: the last one brings the last totals to their replicas.
  for (const auto& pieces : cut_) rounds_ = std::max(rounds_, pieces.size() + 1);
}

const std::vector<SegmentRange>* DeviceReduce::piece(Rank owner, std::size_t round) const {
  const auto& pieces = cut_[owner.value()];
  return round < pieces.size() ? &pieces[round] : nullptr;
}

bool DeviceReduce::held_by(Rank rank, SegmentRange run) const {
  return std::ranges::find((*holders_)[run.first], rank) != (*holders_)[run.first].end();
}

// Two ranks list their transfers in the same order: contributions first, then totals.
Result<std::optional<Round>> DeviceReduce::next(std::byte* memory) {
  if (over()) return std::optional<Round>();
  Round round;
  Staging staging(memory);
  to_add_.clear();
  to_take_.clear();
  const auto* adding = piece(self_, round_);
  const auto* added = round_ == 0 ? nullptr : piece(self_, round_ - 1);
  if (adding)
    for (const SegmentRange run : *adding) to_add_.push_back({run, {}});
  for (const Rank peer : others(self_, world())) {
    if (const auto* theirs = piece(peer, round_); theirs && contributors_[self_])
      for (const SegmentRange run : *theirs)
        round.sends.push_back({peer, memory_.sums(run), bytes(run)});
    if (added)
      for (const SegmentRange run : *added)
        if (held_by(peer, run)) round.sends.push_back({peer, memory_.totals(run), bytes(run)});

    for (Received& received : to_add_) {
      if (!contributors_[peer]) break;
      std::byte* const at = staging.take(bytes(received.run));
      received.from.push_back(at);
      round.receives.push_back({peer, at, bytes(received.run)});
    }
    const auto* totals = round_ == 0 ? nullptr : piece(peer, round_ - 1);
    if (!totals) continue;
    for (const SegmentRange run : *totals) {
      if (!held_by(self_, run)) continue;
      std::byte* const at = staging.take(bytes(run));
      to_take_.push_back({run, {at}});
      round.receives.push_back({peer, at, bytes(run)});
    }
  }
  return std::optional(std::move(round));
}

Result<> DeviceReduce::ended() {
  STARLING_CHECK(!over());
  for (const Received& received : to_add_) memory_.add(received.run, received.from);
  for (const Received& received : to_take_)
    memory_.take_totals(received.run, received.from.front());
  ++round_;
  return ok();
}

}  // namespace starling::collectives
