// `starling coordinator --remove` has the group of coordinators take one out.

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "actors/gateway/gateway.h"
#include "core/base/mac.h"
#include "tools/starling/commands.h"
#include "tools/starling/group.h"
#include "tools/starling/last_answer.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAgain{200};
constexpr std::chrono::seconds kTakeOutPatience{30};

}  // namespace

Result<int> take_out(const CoordinatorCommand& command) {
  if (command.peers.empty())
    return Error(Code::kBadInput, "--remove needs --peers, the addresses of the coordinators");
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
  LastAnswer<ChangeAnswered> answers;
  bool answered = false;
  STARLING_TRY(gateway, actors::Gateway::start(std::move(options), answers.handler()));
  for (const auto begun = Clock::now(); Clock::now() - begun < kTakeOutPatience;) {
    gateway->broadcast_to_servers(asked);
    std::this_thread::sleep_for(kAgain);
    const auto answer = answers.take();
    if (!answer) continue;
    answered = true;
    if (answer->state == ChangeState::kRefused) return Error(Code::kBadInput, answer->reason);
    if (answer->state != ChangeState::kDone) continue;
    std::printf("%s is out of the group\n", command.remove.c_str());
    return 0;
  }
  return Error(Code::kUnavailable,
               answered ? command.remove + " is not out of the group after " +
                              std::to_string(kTakeOutPatience.count()) +
                              " s: it goes when the one that was added before has the log"
                        : "no coordinator that leads has answered for " +
                              std::to_string(kTakeOutPatience.count()) + " s");
}

}  // namespace starling::tools
