#include "actors/gateway/routes.h"

#include <algorithm>

namespace starling::actors {
namespace {
constexpr std::size_t kIncarnationsPerKey = 16;
}

bool Routes::learn(const Incarnation& who, const std::string& routing_id, const std::string& name,
                   const std::string& public_key) {
  const MutexLock lock(mutex_);
  const auto known = by_nonce_.find(who.nonce);
  if (known != by_nonce_.end()) {
    if (known->second.route.name != name || known->second.route.public_key != public_key)
      return false;
    known->second.route.routing_id = routing_id;
    known->second.route.who = who;
    known->second.heard = ++clock_;
    return true;
  }
  std::size_t& count = incarnations_of_[name];
  if (count == kIncarnationsPerKey) {
    auto oldest = by_nonce_.end();
    for (auto it = by_nonce_.begin(); it != by_nonce_.end(); ++it)
      if (it->second.route.name == name &&
          (oldest == by_nonce_.end() || it->second.heard < oldest->second.heard))
        oldest = it;
    by_nonce_.erase(oldest);
    --count;
  }
  by_nonce_.emplace(who.nonce, Known{{routing_id, name, public_key, who}, ++clock_});
  ++count;
  return true;
}

void Routes::forget_all_but(const AllowList& allowed) {
  const MutexLock lock(mutex_);
  std::erase_if(by_nonce_, [&](const auto& known) STARLING_REQUIRES(mutex_) {
    const auto found = allowed.find(known.second.route.public_key);
    if (found != allowed.end() && found->second == known.second.route.name) return false;
    --incarnations_of_[known.second.route.name];
    return true;
  });
}

std::optional<Route> Routes::find(const Incarnation& who) const {
  const MutexLock lock(mutex_);
  const auto known = by_nonce_.find(who.nonce);
  if (known == by_nonce_.end()) return std::nullopt;
  return known->second.route;
}

std::vector<Route> Routes::all() const {
  const MutexLock lock(mutex_);
  std::vector<Route> routes;
  routes.reserve(by_nonce_.size());
  for (const auto& [nonce, known] : by_nonce_) routes.push_back(known.route);
  return routes;
}

std::size_t Routes::size() const {
  const MutexLock lock(mutex_);
  return by_nonce_.size();
}

}  // namespace starling::actors
