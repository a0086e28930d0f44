#include "core/observe/newcomers.h"

namespace starling {

void Newcomers::take(const event::Preparing& worker, Clock::time_point now) {
  count(now);  // forgets names that nobody asks for any more
  since_[worker.name] = now;
}

void Newcomers::take(const event::WorkerChanged& worker) {
  if (worker.what == WorkerChange::kJoined) since_.erase(worker.name);
}

std::size_t Newcomers::count(Clock::time_point now) {
  std::erase_if(since_, [&](const auto& one) { return now - one.second >= kPatience; });
  return since_.size();
}

}  // namespace starling
