#pragma once
// LastAnswer keeps what the coordinator that leads has answered last.

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "actors/gateway/gateway.h"
#include "core/base/mutex.h"

namespace starling::tools {

// Answer: a message of coordinators. Threads: any.
template <class Answer>
class LastAnswer {
 public:
  // The handler must not outlive this object.
  actors::ArrivalHandler handler() {
    return [this](const actors::Arrival& arrival) {
      const auto* answer = std::get_if<Answer>(&arrival.body);
      const MutexLock lock(mutex_);
      if (answer && arrival.server) last_ = *answer;
    };
  }
  // Returns the last answer, once.
  std::optional<Answer> take() {
    const MutexLock lock(mutex_);
    return std::exchange(last_, std::nullopt);
  }

 private:
  Mutex mutex_;
  std::optional<Answer> last_ STARLING_GUARDED_BY(mutex_);
};

// Says that none has answered, and what may be the cause.
inline std::string no_leader(std::chrono::seconds time) {
  return "no coordinator that leads has answered for " + std::to_string(time.count()) +
         " s: most of the group is away, the addresses reach none that lives, or the keys are "
         "another job's";
}

}  // namespace starling::tools
