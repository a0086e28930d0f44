#include "actors/coordinator/identity_desk.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "actors/gateway/refusals.h"
#include "core/base/thread_name.h"

namespace starling::actors {

// What the thread has that goes on where the desk is gone.
struct IdentityDesk::State {
  State(oidc::Provider p, Log l, std::function<void(const std::string&)> r)
      : provider(std::move(p)), log(std::move(l)), refused(std::move(r)) {}

  oidc::Provider provider;  // the thread's, as the next two
  const Log log;
  Refusals refusals;

  std::mutex mutex;  // guards:
  std::condition_variable changed;
  std::deque<Stranger> waiting;
  std::weak_ptr<Gateway> gateway;
  std::function<void(const std::string&)>
      refused;  // empty once the desk is gone, with what it holds
  bool open = false, over = false;

  void run() {
    while (true) {
      Stranger next;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return over || (open && !waiting.empty()); });
        if (over) return;
        next = std::move(waiting.front());
        waiting.pop_front();
      }
      auto holder = provider.check(next.token, std::chrono::system_clock::now(),
                                   std::chrono::steady_clock::now());
      // Without the mutex: the gateway may end with this last pointer to it, and waits for its thread, which
      // may be in take().
      const auto to = there();
      if (!to) return;
      if (!holder) {
        to->refuse(next, holder.error());
        tell(next, holder.error());
      } else if (const auto name = to->enrol(next); !name) {
        tell(next, name.error());
      } else {
        log.info("identity: let in " + name.value() + " from " + next.host + ", of " +
                 (holder.value().subject.empty() ? "no subject" : holder.value().subject));
      }
    }
  }

  std::shared_ptr<Gateway> there() {
    const std::lock_guard lock(mutex);
    return over ? nullptr : gateway.lock();
  }

  void tell(const Stranger& stranger, const Error& why) {
    const Refusal refusal{stranger.public_key, {}, stranger.host, why.text()};
    const auto line = refusals.line(refusal, Refusals::Clock::now());
    const std::lock_guard lock(mutex);
    if (line && refused) refused(*line);
  }
};

IdentityDesk::IdentityDesk(oidc::Provider provider, Log log,
                           std::function<void(const std::string&)> refused)
    : state_(std::make_shared<State>(std::move(provider), std::move(log), std::move(refused))) {
  std::thread([state = state_] {
    name_thread("identity");
    state->run();
  }).detach();
}

IdentityDesk::~IdentityDesk() {
  const std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->refused = nullptr;
  state_->changed.notify_all();
}

void IdentityDesk::open(const std::shared_ptr<Gateway>& gateway) {
  const std::lock_guard lock(state_->mutex);
  state_->gateway = gateway;
  state_->open = true;
  state_->changed.notify_all();
}

void IdentityDesk::take(Stranger stranger) {
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting.size() < kWaiting) {
    state_->waiting.push_back(std::move(stranger));
    state_->changed.notify_all();
  } else if (const auto gateway = state_->gateway.lock()) {
    gateway->refuse(stranger, Error(Code::kUnavailable, "identity: too many tokens wait"));
  }
}

}  // namespace starling::actors
