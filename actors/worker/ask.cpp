#include "actors/worker/ask.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "actors/gateway/seats.h"
#include "core/base/mutex.h"

namespace starling::actors {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAgain{100};
// Links to coordinators that listen are made within this time; after it the
// links that are missing are not waited for if the others have refused.
constexpr milliseconds kSettled{1000};
constexpr milliseconds kSilence{2000};

// Answer holds the first answer of a coordinator, and where coordinators are meanwhile.
class Answer {
 public:
  explicit Answer(std::vector<GatewayOptions::Server> coordinators)
      : coordinators_(std::move(coordinators)) {}
  ArrivalHandler handler() {
    return [this](const Arrival& arrival) {
      Asked asked;
      if (const auto* seats = std::get_if<Seats>(&arrival.body)) {
        const MutexLock lock(mutex_);
        take_seats(*seats, coordinators_);
      }
      if (const auto* welcome = std::get_if<Welcome>(&arrival.body)) {
        asked.job_text = welcome->job_text;
      } else if (const auto* ended = std::get_if<Ended>(&arrival.body)) {
        asked.ended = true;
        asked.end = *ended;
      }
      if (asked.job_text.empty() && !asked.ended) return;
      const MutexLock lock(mutex_);
      if (!asked_) asked_ = std::move(asked);
      changed_.notify_all();
    };
  }
  std::optional<Asked> wait(milliseconds time) {
    const auto until = Clock::now() + time;
    const MutexLock lock(mutex_);
    while (!asked_ && changed_.wait_until(mutex_, until)) continue;
    if (asked_) asked_->coordinators = coordinators_;
    return asked_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Asked> asked_ STARLING_GUARDED_BY(mutex_);
  std::vector<GatewayOptions::Server> coordinators_ STARLING_GUARDED_BY(mutex_);
};

std::string list_of(const std::vector<GatewayOptions::Server>& servers) {
  std::string text;
  for (const auto& server : servers)
    if (!server.address.empty()) text += (text.empty() ? "" : ",") + server.address;
  return text;
}

}  // namespace

std::string hopeless(const std::vector<LinkState>& links, const AskOptions& options, bool settled,
                     const std::string& refusal) {
  const auto count = [&](LinkState state) { return std::count(links.begin(), links.end(), state); };
  if (count(LinkState::kUp) > 0) return {};
  if (count(LinkState::kConnecting) > 0 && !settled) return {};
  if (count(LinkState::kRefused) > 0 && !refusal.empty()) return refusal;
  if (count(LinkState::kRefused) > 0)
    return "this key is not on the coordinators' list: they do not let in " + options.key.name +
           " with the public key " + options.key.public_key;
  const auto wrong = std::find(links.begin(), links.end(), LinkState::kWrongPeer);
  if (wrong == links.end()) return {};
  const auto& server = options.coordinators[static_cast<std::size_t>(wrong - links.begin())];
  return "what listens at " + server.address + " is not " + server.name +
         " of these keys: it has another key, or is no coordinator";
}

void TurnedAway::look(const std::vector<LinkState>& links, Clock::time_point now) {
  const auto any = [&](LinkState state) {
    return std::find(links.begin(), links.end(), state) != links.end();
  };
  if (any(LinkState::kUp) || !any(LinkState::kRefused))
    since_.reset();
  else if (!since_)
    since_ = now;
}

Result<Asked> ask_for_job(const AskOptions& options) {
  Answer answer(options.coordinators);
  STARLING_TRY(door, Gateway::start(gateway_options(options), answer.handler()));
  Join question;
  question.who = options.self;
  question.name = options.key.name;
  question.pid = static_cast<std::uint64_t>(::getpid());
  const auto begun = Clock::now();
  bool said = false;
  TurnedAway turned_away;
  while (true) {
    door->broadcast_to_servers(question);
    if (auto asked = answer.wait(kAgain)) return std::move(*asked);
    const auto waited = Clock::now() - begun;
    std::vector<LinkState> links;
    std::string refusal;
    for (std::size_t i = 0; i < options.coordinators.size(); ++i) {
      links.push_back(door->link(i));
      if (refusal.empty()) refusal = door->refusal(i);
    }
    const bool up = std::count(links.begin(), links.end(), LinkState::kUp) > 0;
    turned_away.look(links, Clock::now());
    const std::string why = hopeless(links, options, waited > kSettled, refusal);
    const bool asks_on = turned_away.now() && !turned_away.for_too_long(Clock::now());
    if (!why.empty() && (!asks_on || waited > options.patience)) return Error(Code::kBadInput, why);
    std::string silence = (up ? "the coordinators at " : "nobody listens yet at ") +
                          list_of(options.coordinators) + (up ? " do not answer yet" : "");
    if (!up && !refusal.empty())
      silence = "the coordinators at " + list_of(options.coordinators) +
                " do not let in this worker yet: " + refusal;
    const bool silent = !turned_away.now() && waited > kSilence;
    if (!said && silent && options.waiting) options.waiting(silence + ", waiting");
    said = said || silent;
    if (waited > options.patience)
      return Error(Code::kUnavailable,
                   "no coordinator answered for " + std::to_string(options.patience.count()) +
                       " ms: " + silence +
                       "; check that one is running and reachable; when a job is over they end as "
                       "well");
    if (options.give_up && options.give_up())
      return Error(Code::kUnavailable, "told to end before a coordinator had answered");
  }
}

}  // namespace starling::actors
