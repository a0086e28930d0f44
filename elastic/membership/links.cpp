#include "elastic/membership/links.h"

#include <algorithm>

namespace starling::elastic {
namespace {
constexpr std::size_t kUnreachedMax = 3;  // lives of one name
}

bool Links::leave_out_joiners(std::vector<Reporter>& reporters,
                              std::vector<std::string>& warnings) {
  std::set<Nonce> broken, unreached;
  for (const Reporter& r : reporters)
    for (const Incarnation& who : r.report.broken) {
      broken.insert(who.nonce);
      if (r.report.unreached) unreached.insert(who.nonce);
    }
  const auto goes = [&](const Reporter& r) {
    return r.report.version == kNoVersion && broken.count(r.who.nonce);
  };
  for (const Reporter& r : reporters) {
    if (!goes(r) || !unreached.count(r.who.nonce)) continue;
    const Member joiner = roster_.member_of(r.who);
    if (unreached_[joiner.name].insert(r.who.nonce).second)
      warnings.push_back(joiner.name + " is left out: others cannot connect to it at " +
                         joiner.host + ":" + std::to_string(joiner.port));
  }
  return std::erase_if(reporters, goes) > 0;
}

void Links::leave_out_one(std::vector<Reporter>& reporters, const Suffice& suffice) {
  std::set<std::pair<Nonce, Nonce>> links;
  std::map<Nonce, int> count;
  const auto place = [&](Nonce nonce) {
    return std::find_if(reporters.begin(), reporters.end(),
                        [&, same = nonce](const Reporter& r) { return r.who.nonce == same; });
  };
  for (const Reporter& r : reporters)
    for (const Incarnation& peer : r.report.broken)
      if (place(peer.nonce) != reporters.end() &&
          links.insert(std::minmax(r.who.nonce, peer.nonce)).second) {
        ++count[r.who.nonce];
        ++count[peer.nonce];
      }
  for (const auto& link : links) {
    if (!broken_.count(link)) continue;
    auto a = place(link.first), b = place(link.second);
    if (a == reporters.end() || b == reporters.end()) continue;
    if (a > b) std::swap(a, b);  // b has the higher rank
    const auto victim = count[a->who.nonce] > count[b->who.nonce] ? a : b;
    std::vector<Reporter> others = reporters;
    others.erase(others.begin() + (victim - reporters.begin()));
    if (!suffice(others)) continue;
    reporters = std::move(others);
    break;
  }
  broken_ = std::move(links);
}

bool Links::hopeless(const std::string& name) {
  const auto it = unreached_.find(name);
  if (it == unreached_.end() || it->second.size() < kUnreachedMax) return false;
  unreached_.erase(it);
  return true;
}

}  // namespace starling::elastic
