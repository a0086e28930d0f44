// `starling coordinator --remove` has the group of coordinators take one out.

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "actors/gateway/gateway.h"
#include "core/base/mac.h"
#include "tools/starling/commands.h"
#include "tools/starling/group.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAgain{200};
constexpr std::chrono::seconds kTakeOutPatience{30};

// Holds the last answer of the coordinator that leads. Threads: any.
class Answers {
 public:
  actors::ArrivalHandler handler() {
    return [this](const actors::Arrival& arrival) {
      const auto* answer = std::get_if<ChangeAnswered>(&arrival.body);
      const std::lock_guard lock(mutex_);
      if (answer && arrival.server) last_ = *answer;
    };
  }
  std::optional<ChangeAnswered> last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<ChangeAnswered> last_;  // guarded by mutex_
};

}  // namespace

Result<int> take_out(const CoordinatorCommand& command) {
  STARLING_TRY(ring, KeyRing::load_for(command.keys, command.name));
  STARLING_TRY(group, coordinators_at(ring, command.peers));
  ChangeAsked asked;
  for (std::uint32_t place = 0; place < group.size(); ++place)
    if (group[place].name == command.remove) asked.remove = place;
  if (!asked.remove)
    return Error(Code::kBadInput,
                 "--remove expects the name of a coordinator of the keys, is " + command.remove);
  actors::GatewayOptions options;
  options.job = job_id_of(ring);
  options.self = Incarnation{0, fresh_nonce()};
  options.key = *ring.find(command.name);
  options.servers = std::move(group);
  options.follows_seats = true;
  Answers answers;
  STARLING_TRY(gateway, actors::Gateway::start(std::move(options), answers.handler()));
  for (const auto begun = Clock::now(); Clock::now() - begun < kTakeOutPatience;) {
    gateway->broadcast_to_servers(asked);
    std::this_thread::sleep_for(kAgain);
    const auto answer = answers.last();
    if (!answer) continue;
    if (answer->state == ChangeState::kRefused) return Error(Code::kBadInput, answer->reason);
    if (answer->state != ChangeState::kDone) continue;
    std::printf("%s is out of the group\n", command.remove.c_str());
    return 0;
  }
  return Error(Code::kUnavailable,
               answers.last() ? command.remove + " is not out of the group after " +
                                    std::to_string(kTakeOutPatience.count()) +
                                    " s: it goes when the one that was added before has the log"
                              : "no coordinator that leads has answered for " +
                                    std::to_string(kTakeOutPatience.count()) + " s");
}

}  // namespace starling::tools
