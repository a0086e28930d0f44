#include "elastic/membership/suspicions.h"

namespace starling::elastic {

std::optional<Suspicions::Found> Suspicions::take(std::uint64_t by, const Difference& d) {
  const Key key{by, d.version, d.micro_batch};
  if (!known_.insert(key).second) return std::nullopt;
  order_.push_back(key);
  if (order_.size() > kKnown) {
    known_.erase(order_.front());
    order_.pop_front();
  }
  ++count_;
  if (by == d.worker || d.first != d.second || d.second == d.row) return Found{by};
  // The oldest lives are forgotten first: counters grow.
  if (differ_.size() > kKnown) differ_.erase(differ_.begin());
  differ_[by].insert(d.worker);
  differ_[d.worker].insert(by);
  const bool worker = differ_[d.worker].size() > 1, finder = differ_[by].size() > 1;
  if (worker == finder) return Found{};
  return Found{worker ? d.worker : by};
}

}  // namespace starling::elastic
