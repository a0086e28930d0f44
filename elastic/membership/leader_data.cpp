// Whose data files are those of the group (docs/design.md, section 5, Data).

#include <algorithm>
#include <utility>

#include "elastic/membership/leader.h"

namespace starling::elastic {

// That of more than half of the members; when all are known, of the most, and of as many that of
// the lowest rank.
std::optional<Digest> Leader::data_of_group() const {
  if (!group_.plan()) return std::nullopt;
  const auto& members = group_.plan()->members;
  std::vector<std::pair<Digest, std::size_t>> counts;  // by rank
  std::size_t known_ones = 0;
  for (const Member& m : members) {
    const auto it = contacts_.find(m.who.nonce);
    if (it == contacts_.end() || it->second.data == Digest{}) continue;
    ++known_ones;
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& c) { return c.first == it->second.data; });
    if (known == counts.end())
      counts.emplace_back(it->second.data, 1);
    else
      ++known->second;
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end()) return std::nullopt;
  const bool decided = known_ones == members.size() || 2 * most->second > members.size();
  return decided ? std::optional<Digest>(most->first) : std::nullopt;
}

// P1: the fingerprint has seen a sample of large files only.
void Leader::refuse_other_data(const Incarnation& who, const std::string& name) {
  Contact& c = contact(who);
  if (c.data == Digest{}) return;
  // Counted when the data of somebody become known, not with every heartbeat.
  if (!std::exchange(group_data_known_, true)) group_data_ = data_of_group();
  const auto& data = group_data_;
  if (!data || c.data == *data) return;
  send(who, Refused{"the data files here are others than the group's: their digest is " +
                    to_string(c.data) + ", the group's " + to_string(*data)});
  if (std::exchange(c.other_data_told, true)) return;
  warn(name + " reads other data than the group, digest " + to_string(c.data) + " and not " +
       to_string(*data) + ", and is told to go; what it has computed is in the result");
}

}  // namespace starling::elastic
