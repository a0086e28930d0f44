#include "collectives/transport_teardown.h"

#include <algorithm>
#include <utility>

namespace starling::collectives {

using namespace teardown;

void TransportTeardown::made(const TransportId& transport, Members members) {
  ends_[transport].members = std::move(members);
  const auto oldest =
      std::ranges::find_if(ends_, [](const auto& entry) { return entry.second.left; });
  if (ends_.size() > kKept && oldest != ends_.end()) ends_.erase(oldest);
}

TeardownCommands TransportTeardown::left(const TransportId& transport, bool revoked) {
  TeardownCommands out;
  const auto it = ends_.find(transport);
  if (it == ends_.end()) return out;
  it->second.left = true;
  it->second.revoked = revoked;
  tell(transport, it->second, out);
  open_if_all_left(transport, it->second, out);
  return out;
}

TeardownCommands TransportTeardown::stands(const EpochId& epoch, Members members, Rank self) {
  TeardownCommands out;
  standing_[epoch] = {std::move(members), self};
  for (auto& [transport, end] : ends_) {
    if (!end.left) continue;
    tell(transport, end, out);
    open_if_all_left(transport, end, out);
  }
  return out;
}

TeardownCommands TransportTeardown::on_word(Incarnation from, const TransportLeft& word) {
  TeardownCommands out;
  const TransportId transport{word.epoch, word.attempt};
  const auto it = ends_.find(transport);
  // The transport was never made here: there is nothing to take apart.
  if (it == ends_.end()) return out;
  it->second.said.insert(from);
  if (it->second.left) open_if_all_left(transport, it->second, out);
  return out;
}

std::vector<Rank> TransportTeardown::others_of(const End& end) const {
  std::vector<Rank> others;
  if (standing_.empty()) return others;
  const auto& [members, self] = standing_.rbegin()->second;
  for (Rank rank = 0; rank < members.size(); ++rank)
    if (rank != self && std::ranges::count(end.members, members[rank]) > 0) others.push_back(rank);
  return others;
}

void TransportTeardown::tell(const TransportId& transport, const End& end,
                             TeardownCommands& out) const {
  for (const Rank to : others_of(end))
    out.push_back(teardown::Send{standing_.rbegin()->first, to,
                                 TransportLeft{transport.epoch, transport.attempt, end.revoked}});
}

void TransportTeardown::open_if_all_left(const TransportId& transport, End& end,
                                         TeardownCommands& out) const {
  // The living members are not known before an epoch stands.
  if (end.opened || standing_.empty()) return;
  const Members& living = standing_.rbegin()->second.members;
  end.opened = std::ranges::all_of(others_of(end),
                                   [&](Rank rank) { return end.said.contains(living[rank]); });
  if (end.opened) out.push_back(Open{transport});
}

}  // namespace starling::collectives
