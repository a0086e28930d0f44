#include "elastic/protocol/rechecks.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace starling::elastic {
namespace {

const LedgerRow* row_of(const std::vector<LedgerRow>& rows, MicroBatch m) {
  const auto row = std::ranges::find(rows, m, &LedgerRow::micro_batch);
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace

std::vector<MicroBatch> rechecks_of(const RecheckRule& rule, Version version,
                                    const std::vector<Rank>& shares, Rank self,
                                    std::uint64_t computed) {
  if (rule.share == 0) return {};
  std::map<Rank, std::vector<MicroBatch>> by_rank;
  for (MicroBatch m = 0; m < shares.size(); ++m) by_rank[shares[m]].push_back(m);
  const auto own = by_rank.find(self);
  if (own == by_rank.end()) return {};
  const std::uint64_t world = by_rank.size();
  // How many rechecks of each member are due until a step.
  const auto due = [&](std::uint64_t steps) {
    return steps * shares.size() / (rule.share * world);
  };
  std::uint64_t count = due(version.value() + 1) - due(version.value());
  const bool asked = rule.every > 0 && version.value() % rule.every == 0;
  if (computed < rule.first || asked) count = std::max<std::uint64_t>(count, 1);
  if (count == 0) return {};
  const std::uint64_t dice = mix64(mix64(rule.seed, version.value()), 7);
  const auto place = static_cast<std::uint64_t>(std::distance(by_rank.begin(), own));
  const std::uint64_t shift = world == 1 ? 0 : 1 + dice % (world - 1);
  const auto theirs =
      std::next(by_rank.begin(), static_cast<std::ptrdiff_t>((place + shift) % world));
  const std::vector<MicroBatch>& all = theirs->second;
  // The job's first step rechecks the micro-batches that were computed first.
  const std::uint64_t from = version == Version{0} ? 0 : mix64(dice, place) % all.size();
  std::vector<MicroBatch> again;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, all.size()); ++i)
    again.push_back(all[(from + i) % all.size()]);
  std::ranges::sort(again);
  return again;
}

void Rechecks::open(std::vector<MicroBatch> wanted) {
  wanted_.clear();
  for (const MicroBatch m : wanted) wanted_[m] = {};
  unanswered_ += static_cast<std::uint32_t>(wanted_.size());
}

std::vector<MicroBatch> Rechecks::wanted() const {
  std::vector<MicroBatch> all;
  for (const auto& [m, again] : wanted_) all.push_back(m);
  return all;
}

void Rechecks::answered(MicroBatch m, std::optional<std::uint64_t> contribution) {
  STARLING_CHECK(unanswered_ > 0);
  --unanswered_;
  const auto again = wanted_.find(m);
  if (again == wanted_.end() || !contribution) return;
  auto& place = again->second.first ? again->second.second : again->second.first;
  place = contribution;
}

std::vector<MicroBatch> Rechecks::once_more(const std::vector<LedgerRow>& rows) {
  STARLING_CHECK(unanswered_ == 0);
  std::vector<MicroBatch> all;
  for (const auto& [m, again] : wanted_) {
    const LedgerRow* row = row_of(rows, m);
    if (row && again.first && !again.second && *again.first != row->contribution) all.push_back(m);
  }
  unanswered_ = static_cast<std::uint32_t>(all.size());
  return all;
}

std::vector<Difference> Rechecks::differences(Version version,
                                              const std::vector<LedgerRow>& rows) const {
  std::vector<Difference> all;
  for (const auto& [m, again] : wanted_) {
    const LedgerRow* row = row_of(rows, m);
    if (row && again.first && again.second && *again.first != row->contribution)
      all.push_back({version, m, row->worker, row->contribution, *again.first, *again.second});
  }
  return all;
}

}  // namespace starling::elastic
