#pragma once
// A new worker asks the coordinators for the job. If none answers, a
// person wants to read the reason at once and not after a timeout.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/client.h"
#include "core/base/result.h"

namespace starling::actors {

// TurnedAway measures how long every link has failed: one coordinator refuses the key, none is up.
class TurnedAway {
 public:
  using Clock = std::chrono::steady_clock;
  // The worker keeps asking for this time: a key file is being copied, or has just
  // been changed (`starling keys --add`), and coordinators look at it once a second.
  static constexpr std::chrono::milliseconds kPatience{5000};

  void look(const std::vector<LinkState>& links, Clock::time_point now);
  bool now() const { return since_.has_value(); }
  bool for_too_long(Clock::time_point now) const { return since_ && now - *since_ > kPatience; }

 private:
  std::optional<Clock::time_point> since_;
};

struct AskOptions : GatewayClient {
  std::chrono::milliseconds patience{30000};
  // Called once after two seconds without an answer, with a line that says why. May be empty.
  std::function<void(const std::string&)> waiting{};
  std::function<bool()> give_up{};  // looked at often; may be empty
};

struct Asked {
  std::string job_text;  // the job file, as the coordinators have it
  bool ended = false;    // the job is over: `end` says how
  Ended end{};
  // AskOptions::coordinators, at the addresses at which they are reached now.
  std::vector<GatewayOptions::Server> coordinators{};
};

// Blocks until a coordinator answers. Errors: kBadInput  the coordinators
// do not know this key, or refuse its token, or the process that listens there is none of this
// job; kUnavailable  no coordinator answered in time, or `give_up` said so.
Result<Asked> ask_for_job(const AskOptions& options);

// Says why a worker cannot go on with these links; empty while one stands or may still
// be made. `settled`: links to all coordinators that listen have had time to be made. `refusal`: what a coordinator
// says of our token; empty: nothing.
std::string hopeless(const std::vector<LinkState>& links, const AskOptions& options, bool settled,
                     const std::string& refusal = {});

}  // namespace starling::actors
