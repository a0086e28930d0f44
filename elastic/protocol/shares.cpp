#include "elastic/protocol/shares.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "core/base/check.h"
#include "core/wire/limits.h"

namespace starling::elastic {
namespace {

constexpr std::size_t kMeasured = 9;          // micro-batches; odd, so that one is in the middle
constexpr std::uint64_t kWorthChanging = 10;  // a tenth
constexpr std::uint64_t kWorthBeingUnequal = 20;

// A member's time covers what is left of one step and a whole step dealt on top of it.
static_assert(2 * limits::kMicroBatches + 1 <= ~std::uint64_t{0} / kMicroBatchNsMax);

std::uint64_t bounded(std::uint64_t micro_batch_ns) {
  return std::min(micro_batch_ns, kMicroBatchNsMax);
}

std::vector<std::uint32_t> counts_of(const std::vector<Rank>& shares, std::size_t world) {
  std::vector<std::uint32_t> counts(world);
  for (const Rank r : shares) ++counts[r];
  return counts;
}

// The time when the last micro-batch would be done.
std::uint64_t end_of(const std::vector<std::uint32_t>& counts,
                     const std::vector<Capacity>& members) {
  std::uint64_t end = 0;
  for (std::size_t r = 0; r < members.size(); ++r)
    end = std::max(end, counts[r] * bounded(members[r].micro_batch_ns));
  return end;
}

std::vector<std::uint32_t> counts_dealt(const std::vector<Capacity>& members,
                                        std::uint32_t micro_batches) {
  return counts_of(deal(members, micro_batches), members.size());
}

// Whether all members are known to be about as fast as each other: then measured differences are
// noise, and no reason for unequal shares.
bool may_be_equal(const std::vector<std::uint32_t>& equal, const std::vector<std::uint32_t>& best,
                  const std::vector<Capacity>& members) {
  for (std::size_t r = 0; r < members.size(); ++r)
    if (equal[r] > 0 && members[r].micro_batch_ns == 0) return false;
  const std::uint64_t shortest = end_of(best, members);
  return end_of(equal, members) - shortest <= shortest / kWorthBeingUnequal;
}

std::vector<std::uint32_t> equal_counts(std::vector<Capacity> members,
                                        std::uint32_t micro_batches) {
  for (Capacity& member : members) member.micro_batch_ns = 0;
  return counts_dealt(members, micro_batches);
}

std::vector<Rank> in_runs(const std::vector<std::uint32_t>& counts) {
  std::vector<Rank> shares;
  for (Rank r = 0; r < counts.size(); ++r) shares.insert(shares.end(), counts[r], r);
  return shares;
}

}  // namespace

std::vector<bool> contributors_of(const std::vector<Rank>& shares, std::size_t world) {
  std::vector<bool> contributes(world);
  for (const Rank r : shares) contributes.at(r) = true;
  return contributes;
}

std::vector<Rank> deal(const std::vector<Capacity>& members, std::uint32_t count) {
  STARLING_CHECK(std::ranges::any_of(members, &Capacity::computes));
  const bool some_known = std::any_of(members.begin(), members.end(),
                                      [](const Capacity& c) { return c.micro_batch_ns != 0; });

  std::vector<Rank> dealt;
  std::vector<std::uint64_t> each(members.size(), 1);
  // The time at which a member would have done its next micro-batch, and its rank; first on top.
  using Turn = std::pair<std::uint64_t, Rank>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (Rank r = 0; r < members.size(); ++r) {
    const Capacity& member = members[r];
    if (!member.computes) continue;
    if (some_known && member.micro_batch_ns == 0) {
      if (member.left == 0 && dealt.size() < count) dealt.push_back(r);
      continue;
    }
    if (some_known) each[r] = bounded(member.micro_batch_ns);
    turns.push({(member.left + std::uint64_t{1}) * each[r], r});
  }
  while (dealt.size() < count) {
    const auto [end, r] = turns.top();
    turns.pop();
    dealt.push_back(r);
    turns.push({end + each[r], r});
  }
  return dealt;
}

std::vector<Rank> first_shares(const std::vector<Capacity>& members, std::uint32_t micro_batches) {
  const auto best = counts_dealt(members, micro_batches);
  const auto equal = equal_counts(members, micro_batches);
  return in_runs(may_be_equal(equal, best, members) ? equal : best);
}

std::vector<Rank> next_shares(const std::vector<Rank>& before,
                              const std::vector<Capacity>& members) {
  const auto old = counts_of(before, members.size());
  const auto count = static_cast<std::uint32_t>(before.size());
  const auto best = counts_dealt(members, count), equal = equal_counts(members, count);
  if (may_be_equal(equal, best, members)) return in_runs(equal);
  if (std::ranges::any_of(members,
                          [](const Capacity& c) { return c.computes && c.micro_batch_ns == 0; }))
    return in_runs(best);
  const std::uint64_t shortest = end_of(best, members);
  const bool worth_it = end_of(old, members) - shortest > shortest / kWorthChanging;
  return in_runs(worth_it ? best : old);
}

void Speedometer::took(std::uint64_t micro_batch_ns) {
  if (micro_batch_ns == 0) return;  // not measured
  last_.push_back(bounded(micro_batch_ns));
  if (last_.size() > kMeasured) last_.pop_front();
}

std::uint64_t Speedometer::micro_batch_ns() const {
  if (last_.empty()) return 0;
  std::vector<std::uint64_t> sorted(last_.begin(), last_.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

std::uint64_t Speedometer::for_vote(bool worked, std::uint64_t now_ms) {
  if (worked)
    worked_ms_ = now_ms;
  else if ((now_ms - worked_ms_) * 1'000'000 / probe_after_ > micro_batch_ns())
    last_.clear();
  return micro_batch_ns();
}

}  // namespace starling::elastic
