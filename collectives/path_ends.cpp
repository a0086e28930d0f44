#include "collectives/path_ends.h"

#include <algorithm>
#include <utility>

namespace starling::collectives {

using namespace path_end;

void PathEnds::made(const PathName& path, Members members) {
  ends_[path].members = std::move(members);
  const auto oldest =
      std::ranges::find_if(ends_, [](const auto& entry) { return entry.second.left; });
  if (ends_.size() > kKept && oldest != ends_.end()) ends_.erase(oldest);
}

PathEndCommands PathEnds::left(const PathName& path, bool revoked) {
  PathEndCommands out;
  const auto it = ends_.find(path);
  if (it == ends_.end()) return out;
  it->second.left = true;
  it->second.revoked = revoked;
  tell(path, it->second, out);
  open_if_all_left(path, it->second, out);
  return out;
}

PathEndCommands PathEnds::stands(const EpochId& epoch, Members members, Rank self) {
  PathEndCommands out;
  standing_[epoch] = {std::move(members), self};
  for (auto& [path, end] : ends_) {
    if (!end.left) continue;
    tell(path, end, out);
    open_if_all_left(path, end, out);
  }
  return out;
}

PathEndCommands PathEnds::on_word(Incarnation from, const PathLeft& word) {
  PathEndCommands out;
  const PathName path{word.epoch, word.attempt};
  const auto it = ends_.find(path);
  // The path was never made here: there is nothing to take apart.
  if (it == ends_.end()) return out;
  it->second.said.insert(from);
  if (it->second.left) open_if_all_left(path, it->second, out);
  return out;
}

std::vector<Rank> PathEnds::others_of(const End& end) const {
  std::vector<Rank> others;
  if (standing_.empty()) return others;
  const auto& [members, self] = standing_.rbegin()->second;
  for (Rank rank = 0; rank < members.size(); ++rank)
    if (rank != self && std::ranges::count(end.members, members[rank]) > 0) others.push_back(rank);
  return others;
}

void PathEnds::tell(const PathName& path, const End& end, PathEndCommands& out) const {
  for (const Rank to : others_of(end))
    out.push_back(
        Send{standing_.rbegin()->first, to, PathLeft{path.epoch, path.attempt, end.revoked}});
}

void PathEnds::open_if_all_left(const PathName& path, End& end, PathEndCommands& out) const {
  // The living members are not known before an epoch stands.
  if (end.opened || standing_.empty()) return;
  const Members& living = standing_.rbegin()->second.members;
  end.opened = std::ranges::all_of(others_of(end),
                                   [&](Rank rank) { return end.said.contains(living[rank]); });
  if (end.opened) out.push_back(Open{path});
}

}  // namespace starling::collectives
