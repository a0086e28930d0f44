#include "collectives/rounds.h"

#include <algorithm>

#include "collectives/ranges.h"
#include "core/base/check.h"

namespace starling::collectives {

std::size_t range_bytes(std::size_t round_bytes, std::uint32_t world) {
  return std::max<std::size_t>(1, round_bytes / world);
}

Cut::Cut(const Layout& layout, const std::vector<std::vector<Rank>>& holders, std::uint32_t world,
         std::size_t round_bytes)
    : ranges_(world) {
  const std::size_t most = range_bytes(round_bytes, world);
  std::vector<std::size_t> last(world);  // bytes of each owner's last round
  for (const SegmentRange range : equal_ranges(layout, holders, most)) {
    const auto owner = holders[range.first].front().value();
    const std::size_t bytes = layout.bytes_of(range, What::kSums);
    if (ranges_[owner].empty() || last[owner] + bytes > most) {
      ranges_[owner].emplace_back();
      last[owner] = 0;
    }
    ranges_[owner].back().push_back(range);
    last[owner] += bytes;
  }
}

std::size_t Cut::rounds() const {
  std::size_t most = 0;
  for (const auto& rounds : ranges_) most = std::max(most, rounds.size());
  return most;
}

std::span<const SegmentRange> Cut::ranges(Rank owner, std::size_t round) const {
  const auto& rounds = ranges_[owner.value()];
  if (round >= rounds.size()) return {};
  return rounds[round];
}

// A round of a reduce brings this rank's ranges from all others, and ranges of each of them; one of a
// gather no more than the latter.
std::size_t staging_bytes(const Layout& layout, const std::vector<std::vector<Rank>>& holders,
                          std::uint32_t world, Rank self, std::size_t round_bytes) {
  std::vector<std::size_t> owned(world);
  std::size_t largest = 0;
  for (SegmentId s = 0; s < layout.segments(); ++s) {
    const std::size_t bytes = layout.bytes_of(s, What::kSums);
    owned[holders[s].front().value()] += bytes;
    largest = std::max(largest, bytes);
  }
  const std::size_t most = std::max(range_bytes(round_bytes, world), largest);
  std::size_t bytes = 0;
  for (Rank r = 0; r < world; ++r)
    bytes += std::min(most, owned[r.value()]) * (r == self ? world - 1 : 1);
  return world == 1 ? 0 : bytes;
}

void Rounds::use(DeviceTransport& transport, std::uint32_t attempt) {
  STARLING_CHECK(transport_ == nullptr);
  STARLING_CHECK(attempt != 0);
  transport_ = &transport;
  attempt_ = attempt;
}

Result<> Rounds::go() {
  while (!under_way_ && !users_.empty()) {
    const Queued now = users_.front();
    const bool there = transport_ != nullptr && attempt_ == now.attempt;
    STARLING_TRY(round, now.user->next(there ? transport_->staging() : nullptr));
    if (!round) {
      if (!now.user->over()) return ok();
      users_.pop_front();
      continue;
    }
    if (round->sends.empty() && round->receives.empty()) {
      STARLING_TRY(now.user->ended());
      continue;
    }
    if (!there)
      return Error(Code::kUnavailable,
                   "the device transport of attempt " + std::to_string(now.attempt) + " is lost");
    under_way_ = true;
    transport_->exchange(std::move(round->sends), std::move(round->receives));
  }
  return ok();
}

Result<> Rounds::ended() {
  STARLING_CHECK(under_way_ && !users_.empty());
  under_way_ = false;
  STARLING_TRY(users_.front().user->ended());
  return go();
}

}  // namespace starling::collectives
