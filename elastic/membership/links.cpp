#include "elastic/membership/links.h"

#include <algorithm>
#include <array>

namespace starling::elastic {
namespace {

constexpr std::size_t kUnreachedMax = 3;  // lives of one name
constexpr std::uint64_t kLater_ms = 10000;
constexpr std::size_t kDoublingsMax = 5;
constexpr std::size_t kReasonsMax = 64;  // lives that can be told why

using Pair = std::pair<Nonce, Nonce>;

std::size_t place_of(const std::vector<Reporter>& reporters, Nonce nonce) {
  const auto at = std::find_if(reporters.begin(), reporters.end(),
                               [&](const Reporter& r) { return r.who.nonce == nonce; });
  return static_cast<std::size_t>(at - reporters.begin());
}

// One end of file follows from another, all over the group: an end of file says something only
// where no report names a link that never stood or fell silent.
bool at_first_hand(const Reporter& r) {
  return r.report.fault != LinkFault::kEnded && !r.report.broken.empty();
}
bool some_at_first_hand(const std::vector<Reporter>& reporters) {
  return std::any_of(reporters.begin(), reporters.end(), at_first_hand);
}

// Broken links between reporters, each once, and how many each of them has.
struct Broken {
  std::set<Pair> links;
  std::map<Nonce, int> count;
};
template <class Counts>
Broken broken_links(const std::vector<Reporter>& reporters, const Counts& counts) {
  Broken broken;
  for (const Reporter& r : reporters) {
    if (!counts(r)) continue;
    for (const Incarnation& peer : r.report.broken)
      if (place_of(reporters, peer.nonce) < reporters.size() &&
          broken.links.insert(std::minmax(r.who.nonce, peer.nonce)).second) {
        ++broken.count[r.who.nonce];
        ++broken.count[peer.nonce];
      }
  }
  return broken;
}

// The ends of a link: first the one that has more broken links, else the one of the higher rank.
std::array<Nonce, 2> worse_first(const Pair& link, const Broken& broken,
                                 const std::vector<Reporter>& reporters) {
  Nonce low = link.first, high = link.second;
  if (place_of(reporters, low) > place_of(reporters, high)) std::swap(low, high);
  if (broken.count.at(low) > broken.count.at(high)) return {low, high};
  return {high, low};
}

// Whether one end says that this link never stood.
bool never_stood(const Pair& link, const std::vector<Reporter>& reporters) {
  const auto names = [](const Reporter& r, Nonce peer) {
    return std::any_of(r.report.broken.begin(), r.report.broken.end(),
                       [&](const Incarnation& who) { return who.nonce == peer; });
  };
  return std::any_of(reporters.begin(), reporters.end(), [&](const Reporter& r) {
    return r.report.fault == LinkFault::kUnreached &&
           ((r.who.nonce == link.first && names(r, link.second)) ||
            (r.who.nonce == link.second && names(r, link.first)));
  });
}

std::vector<Reporter> without(std::vector<Reporter> reporters, Nonce nonce) {
  std::erase_if(reporters, [&](const Reporter& r) { return r.who.nonce == nonce; });
  return reporters;
}

}  // namespace

bool Links::leave_out_joiners(std::vector<Reporter>& reporters,
                              std::vector<std::string>& warnings) {
  const bool first_hand = some_at_first_hand(reporters);
  const auto joins = [&](Nonce nonce) {
    const std::size_t place = place_of(reporters, nonce);
    return place < reporters.size() && reporters[place].report.version == kNoVersion;
  };
  std::map<Nonce, LinkFault> broken;
  const auto name = [&](Nonce nonce, LinkFault fault) {
    const auto [at, fresh] = broken.emplace(nonce, fault);
    if (!fresh) at->second = std::max(at->second, fault);
  };
  for (const Reporter& r : reporters) {
    if (first_hand && !at_first_hand(r)) continue;
    for (const Incarnation& peer : r.report.broken) {
      name(peer.nonce, r.report.fault);
      if (first_hand && joins(r.who.nonce) && !joins(peer.nonce)) name(r.who.nonce, r.report.fault);
    }
  }
  std::vector<Nonce> leave;
  for (const Reporter& r : reporters)
    if (joins(r.who.nonce) && broken.count(r.who.nonce)) leave.push_back(r.who.nonce);
  for (const Nonce nonce : leave) leave_out(reporters, nonce, broken.at(nonce), warnings);
  return !leave.empty();
}

void Links::leave_out_unreached(std::vector<Reporter>& reporters, const Suffice& suffice,
                                std::vector<std::string>& warnings) {
  const auto counts = [](const Reporter& r) { return r.report.fault == LinkFault::kUnreached; };
  std::vector<Reporter> judged = reporters;
  for (;;) {
    const Broken broken = broken_links(judged, counts);
    if (broken.links.empty()) return;
    // First leave out the worker with most broken links: it may be the cause of all of them.
    const auto worst = std::max_element(broken.count.begin(), broken.count.end(),
                                        [&](const auto& a, const auto& b) {
                                          return std::pair(a.second, place_of(judged, a.first)) <
                                                 std::pair(b.second, place_of(judged, b.first));
                                        });
    if (suffice(without(reporters, worst->first)))
      leave_out(reporters, worst->first, LinkFault::kUnreached, warnings);
    judged = without(std::move(judged), worst->first);
  }
}

std::optional<Links::Apart> Links::leave_out_one(std::vector<Reporter>& reporters, bool ran,
                                                 const Suffice& suffice,
                                                 std::vector<std::string>& warnings) {
  const bool first_hand = some_at_first_hand(reporters);
  const Broken broken =
      broken_links(reporters, [&](const Reporter& r) { return !first_hand || at_first_hand(r); });
  const auto before = std::exchange(broken_, {});
  std::vector<Pair> again, apart;
  for (const Pair& link : broken.links) {
    Break& now = broken_[link];
    if (never_stood(link, reporters)) now.apart_ms = roster_.now_ms();
    const auto last = before.find(link);
    if (last == before.end()) continue;
    again.push_back(link);
    if (ran || !now.apart_ms || !last->second.apart_ms) continue;
    now = last->second;
    apart.push_back(link);
  }
  for (const Pair& link : again) {
    for (const Nonce victim : worse_first(link, broken, reporters)) {
      if (!suffice(without(reporters, victim))) continue;
      LinkFault fault = LinkFault::kEnded;
      for (const Reporter& r : reporters)
        if (first_hand && (r.who.nonce == link.first || r.who.nonce == link.second))
          fault = std::max(fault, r.report.fault);
      leave_out(reporters, victim, fault, warnings);
      return std::nullopt;
    }
  }
  return longest_apart(apart, reporters, warnings);
}

std::optional<Links::Apart> Links::longest_apart(const std::vector<Pair>& links,
                                                 const std::vector<Reporter>& reporters,
                                                 std::vector<std::string>& warnings) {
  std::optional<Apart> longest;
  for (const Pair& link : links) {
    std::string names;
    for (const Reporter& r : reporters)
      if (r.who.nonce == link.first || r.who.nonce == link.second)
        names += (names.empty() ? "" : " and ") + roster_.member_of(r.who).name;
    Break& broken = broken_.at(link);
    if (!std::exchange(broken.told, true))
      warnings.push_back(
          names + " cannot connect to each other, and nobody else has what each of them has");
    if (!longest || *broken.apart_ms < longest->since_ms) longest = {names, *broken.apart_ms};
  }
  return longest;
}

void Links::leave_out(std::vector<Reporter>& reporters, Nonce nonce, LinkFault fault,
                      std::vector<std::string>& warnings) {
  const std::size_t place = place_of(reporters, nonce);
  const Member member = roster_.member_of(reporters[place].who);
  const bool joins = reporters[place].report.version == kNoVersion;
  reporters.erase(reporters.begin() + static_cast<std::ptrdiff_t>(place));
  std::string why = "a connection between it and another worker breaks again and again";
  if (fault == LinkFault::kSilent) why = "nothing comes over a connection between it and another";
  if (fault == LinkFault::kUnreached)
    why = "others cannot connect to it at " + member.host + ":" + std::to_string(member.port);
  const bool is_new = give_reason(nonce, why);
  if (fault != LinkFault::kEnded && is_new)
    warnings.push_back(member.name + " is left out: " + why);
  if (fault != LinkFault::kUnreached || !joins) return;
  Unreached& unreached = unreached_[member.name];
  if (!unreached.lives.insert(nonce).second || unreached.lives.size() < kUnreachedMax) return;
  const std::size_t doublings = std::min(unreached.lives.size() - kUnreachedMax, kDoublingsMax);
  unreached.until_ms = roster_.now_ms() + (kLater_ms << doublings);
}

// Notes why a life was left out. Returns whether it had no reason before.
bool Links::give_reason(Nonce nonce, const std::string& why) {
  while (reasons_.size() >= kReasonsMax) reasons_.erase(reasons_.begin());
  return reasons_.emplace(nonce, why).second;
}

void Links::tell_silent(const std::vector<Incarnation>& missing,
                        const std::vector<Reporter>& reporters,
                        std::vector<std::string>& warnings) {
  for (const Incarnation& who : missing) {
    const bool silent = std::any_of(reporters.begin(), reporters.end(), [&](const Reporter& r) {
      const auto& broken = r.report.broken;
      return r.report.fault == LinkFault::kSilent &&
             std::find(broken.begin(), broken.end(), who) != broken.end();
    });
    const std::string why = "nothing comes over its connections, and it does not report";
    if (silent && give_reason(who.nonce, why))
      warnings.push_back(roster_.member_of(who).name + " is left out: " + why);
  }
}

void Links::reached(const std::string& name) {
  unreached_.erase(name);
  once_reached_.insert(name);
}

Links::Entry Links::entry(const std::string& name) {
  const auto it = unreached_.find(name);
  if (it == unreached_.end() || it->second.lives.size() < kUnreachedMax) return Entry::kFree;
  if (once_reached_.count(name))
    return roster_.now_ms() < it->second.until_ms ? Entry::kLater : Entry::kFree;
  unreached_.erase(it);
  return Entry::kRefused;
}

std::string Links::reason(const Incarnation& who) const {
  const auto it = reasons_.find(who.nonce);
  return it == reasons_.end() ? "" : it->second;
}

}  // namespace starling::elastic
