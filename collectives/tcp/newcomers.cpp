#include "collectives/tcp/newcomers.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace starling::collectives {

std::optional<Newcomers::Connection> Newcomers::came(Connection connection, Clock::time_point now) {
  const int number = connection.number;
  settled(number);  // the number of an older connection whose end was not told
  ++counts_[connection.from.host];
  waiting_[number] = {std::move(connection), now, ++clock_};
  if (waiting_.size() <= max_) return std::nullopt;
  std::vector<int> let_in;
  for (const auto& [n, waiting] : waiting_)
    if (now - waiting.came > patience_) let_in.push_back(n);
  for (const int n : let_in) settled(n);
  if (waiting_.size() <= max_) return std::nullopt;
  auto gone = next_to_go();
  settled(gone->number);
  return gone;
}

std::optional<Newcomers::Connection> Newcomers::next_to_go() const {
  if (waiting_.empty()) return std::nullopt;
  std::size_t most = 0;
  for (const auto& [host, count] : counts_) most = std::max(most, count);
  auto oldest = waiting_.end();
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it)
    if (counts_.at(it->second.connection.from.host) == most &&
        (oldest == waiting_.end() || it->second.order < oldest->second.order))
      oldest = it;
  return oldest->second.connection;
}

void Newcomers::settled(int number) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return;
  const auto count = counts_.find(found->second.connection.from.host);
  if (--count->second == 0) counts_.erase(count);
  waiting_.erase(found);
}

}  // namespace starling::collectives
