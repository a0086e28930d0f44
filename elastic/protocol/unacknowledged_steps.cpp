#include "elastic/protocol/unacknowledged_steps.h"

#include <algorithm>
#include <utility>

namespace starling::elastic {

namespace {
constexpr std::size_t kRowsAtOnce = 2048;  // some 80 KB
constexpr std::uint32_t kDoubledMax = 5;   // 32 times the first wait
// Some 20 MiB. Beyond it the oldest step is dropped: the run goes on; `starling audit` names it.
constexpr std::size_t kRowsMax = std::size_t{1} << 19;
}  // namespace

void UnacknowledgedSteps::add(Progress progress, std::uint64_t now_ms) {
  const std::size_t rows = std::max<std::size_t>(1, progress.ledger.size());
  while (!steps_.empty() && (steps_.size() + 1) * rows > kRowsMax) steps_.erase(steps_.begin());
  const Version version = progress.record.version;
  steps_[version] = {std::move(progress), now_ms, 0, 0};
}

void UnacknowledgedSteps::timed(Version version, double step_ms,
                                const std::optional<Pause>& pause) {
  const auto at = steps_.find(version);
  if (at == steps_.end()) return;
  at->second.progress.step_ms = step_ms;
  at->second.progress.pause = pause;
}

bool UnacknowledgedSteps::acknowledge(Version version) {
  const auto at = steps_.find(version);
  if (at == steps_.end()) return false;
  if (at->second.again > 0) restart_retries();
  steps_.erase(at);
  return true;
}

void UnacknowledgedSteps::restart_retries() {
  for (auto& [version, report] : steps_) report.doubled = 0;
}

std::vector<UnacknowledgedSteps::Due> UnacknowledgedSteps::due(std::uint64_t now_ms,
                                                               std::uint64_t retry_ms,
                                                               std::size_t at_once) {
  std::vector<Due> found;
  std::size_t rows = 0;
  for (auto& [version, report] : steps_) {
    if (found.size() == at_once) break;
    if (now_ms - report.at_ms < retry_ms << report.doubled) continue;
    const std::size_t more = report.progress.ledger.size();
    if (!found.empty() && rows + more > kRowsAtOnce) break;
    rows += more;
    report.at_ms = now_ms;
    if (report.doubled < kDoubledMax) ++report.doubled;
    found.push_back({report.progress, report.again++});
  }
  return found;
}

}  // namespace starling::elastic
