#include "elastic/protocol/untold.h"

#include <algorithm>
#include <utility>

namespace starling::elastic {

namespace {
constexpr std::size_t kAtOnce = 16;
// Some 20 MiB. Beyond it the oldest is forgotten: the run goes on, and `starling audit` names it.
constexpr std::size_t kRowsMax = std::size_t{1} << 19;
}  // namespace

void Untold::add(Progress progress, std::uint64_t now_ms) {
  const std::size_t rows = std::max<std::size_t>(1, progress.ledger.size());
  while (!steps_.empty() && (steps_.size() + 1) * rows > kRowsMax) steps_.erase(steps_.begin());
  const Version version = progress.record.version;
  steps_[version] = {std::move(progress), now_ms};
}

void Untold::timed(Version version, double step_ms, const std::optional<Pause>& pause) {
  const auto at = steps_.find(version);
  if (at == steps_.end()) return;
  at->second.progress.step_ms = step_ms;
  at->second.progress.pause = pause;
}

std::vector<Progress> Untold::due(std::uint64_t now_ms, std::uint64_t retry_ms) {
  std::vector<Progress> found;
  for (auto& [version, said] : steps_) {
    if (found.size() == kAtOnce) break;
    if (now_ms - said.at_ms < retry_ms) continue;
    said.at_ms = now_ms;
    found.push_back(said.progress);
  }
  return found;
}

}  // namespace starling::elastic
