#pragma once
// The first word of a worker to the coordinators: what is the job? And what is wrong, if nobody
// answers, which a person wants to read at once and not after a timeout.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/gateway.h"
#include "core/base/ids.h"
#include "core/base/keys.h"
#include "core/base/result.h"

namespace starling::actors {

// How long every coordinator has turned a worker away: one refuses its key, and none is up.
class TurnedAway {
 public:
  using Clock = std::chrono::steady_clock;
  // A worker asks on for so long: a key file is being copied, or has just been changed
  // (`starling keys --add`), and coordinators look at it once a second.
  static constexpr std::chrono::milliseconds kPatience{5000};

  void look(const std::vector<LinkState>& links, Clock::time_point now);
  bool now() const { return since_.has_value(); }
  bool for_too_long(Clock::time_point now) const { return since_ && now - *since_ > kPatience; }

 private:
  std::optional<Clock::time_point> since_;
};

struct AskOptions {
  JobId job_id{};
  Incarnation self;  // nonce != 0, of this life
  KeyPair key;
  std::vector<GatewayOptions::Server> coordinators;
  std::chrono::milliseconds patience{30000};
  // Called once when nobody has answered for two seconds, with a line that says why. May be empty.
  std::function<void(const std::string&)> waiting{};
  std::function<bool()> give_up{};  // looked at often; may be empty
};

struct Asked {
  std::string job_text;  // the job file, as the coordinators have it
  bool ended = false;    // the job is over: `end` says how
  Ended end{};
};

// Blocks until a coordinator answers. Errors: kBadInput  the coordinators do not know this key, or
// what listens there is none of this job; kUnavailable  nobody answered in time, or it was given
// up.
Result<Asked> ask_for_job(const AskOptions& options);

// Why a worker cannot go on with these links; empty while one stands or may still be made.
// `settled`: time enough has passed for links to be made where somebody listens.
std::string hopeless(const std::vector<LinkState>& links, const AskOptions& options, bool settled);

}  // namespace starling::actors
