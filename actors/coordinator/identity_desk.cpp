#include "actors/coordinator/identity_desk.h"

#include <chrono>
#include <deque>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/gateway/refusals.h"
#include "core/base/mutex.h"
#include "core/base/thread_name.h"

namespace starling::actors {

// What the threads have that go on where the desk is gone.
struct IdentityDesk::State {
  State(oidc::Provider p, Log l, std::function<void(const std::string&)> r)
      : log(std::move(l)), provider(std::move(p)), refused(std::move(r)) {}

  static constexpr std::size_t kAside = IdentityDesk::kWaiting / 2;

  const Log log;
  Refusals refusals;  // of the thread that looks at tokens

  Mutex mutex;
  oidc::Provider provider STARLING_GUARDED_BY(mutex);
  CondVar changed;
  std::deque<Stranger> waiting STARLING_GUARDED_BY(mutex);
  std::vector<Stranger> aside STARLING_GUARDED_BY(mutex);  // wait for the provider; kAside at most
  bool asks STARLING_GUARDED_BY(mutex) = false;            // the provider is asked
  std::optional<Result<oidc::KeySet>> answer STARLING_GUARDED_BY(mutex){};  // what it said
  std::weak_ptr<Gateway> gateway STARLING_GUARDED_BY(mutex);
  // Empty once the desk is gone, with what it holds.
  std::function<void(const std::string&)> refused STARLING_GUARDED_BY(mutex);
  bool open STARLING_GUARDED_BY(mutex) = false;
  bool over STARLING_GUARDED_BY(mutex) = false;

  // Looks at tokens. A token of an unknown key waits in `aside` while the provider is asked; no other token waits for it.
  void run() {
    MutexLock lock(mutex);
    while (true) {
      while (!over && !(open && (answer || !waiting.empty()))) changed.wait(mutex);
      if (over) return;
      if (answer) {
        if (*answer && !answer->value().why_kept.empty())
          log.warn("identity: the provider is away, and its keys of before count: " +
                   answer->value().why_kept);
        std::vector<std::string> tokens;
        for (const Stranger& stranger : aside) tokens.push_back(stranger.token);
        provider.answered(*std::exchange(answer, std::nullopt), tokens,
                          std::chrono::steady_clock::now());
        waiting.insert(waiting.begin(), std::make_move_iterator(aside.begin()),
                       std::make_move_iterator(aside.end()));
        aside.clear();
        continue;
      }
      Stranger next = std::move(waiting.front());
      waiting.pop_front();
      auto holder = provider.check_known(next.token, std::chrono::system_clock::now(),
                                         std::chrono::steady_clock::now());
      if (!holder && aside.size() < kAside) {
        aside.push_back(std::move(next));
        asks = true;
        changed.notify_all();
        continue;
      }
      lock.unlock();
      decide(next, holder ? *std::move(holder)
                          : Result<oidc::Holder>(Error(Code::kUnavailable,
                                                       "identity: too many tokens of keys that are "
                                                       "not known wait")));
      lock.lock();
    }
  }

  // Asks the provider, on a thread of its own, whenever a token waits for that.
  void ask() {
    MutexLock lock(mutex);
    while (true) {
      while (!over && !(asks && !answer)) changed.wait(mutex);
      if (over) return;
      lock.unlock();
      auto keys = ask_provider();
      lock.lock();
      asks = false;
      answer.emplace(std::move(keys));
      changed.notify_all();
    }
  }

  // Provider::ask() may run beside all others, and may take long.
  Result<oidc::KeySet> ask_provider() const STARLING_NO_THREAD_SAFETY_ANALYSIS {
    return provider.ask();
  }

  // Without the mutex: the gateway may end with the last pointer to it here, and waits for its thread, which may be in
  // take().
  void decide(const Stranger& stranger, const Result<oidc::Holder>& holder)
      STARLING_EXCLUDES(mutex) {
    const auto to = there();
    if (!to) return;
    if (!holder) {
      to->refuse(stranger, holder.error());
      tell(stranger, holder.error());
    } else if (const auto name = to->enrol(stranger); !name) {
      tell(stranger, name.error());
    } else {
      log.info("identity: let in " + name.value() + " from " + stranger.host + ", of " +
               (holder.value().subject.empty() ? "no subject" : holder.value().subject));
    }
  }

  std::shared_ptr<Gateway> there() {
    const MutexLock lock(mutex);
    return over ? nullptr : gateway.lock();
  }

  void tell(const Stranger& stranger, const Error& why) {
    const Refusal refusal{
        stranger.public_key, {}, stranger.host, why.text(), why.code() == Code::kUnavailable};
    const auto line = refusals.line(refusal, Refusals::Clock::now());
    const MutexLock lock(mutex);
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
  std::thread([state = state_] {
    name_thread("provider");
    state->ask();
  }).detach();
}

IdentityDesk::~IdentityDesk() {
  const MutexLock lock(state_->mutex);
  state_->over = true;
  state_->refused = nullptr;
  state_->changed.notify_all();
}

void IdentityDesk::open(const std::shared_ptr<Gateway>& gateway) {
  const MutexLock lock(state_->mutex);
  state_->gateway = gateway;
  state_->open = true;
  state_->changed.notify_all();
}

void IdentityDesk::take(Stranger stranger) {
  const MutexLock lock(state_->mutex);
  if (state_->waiting.size() < kWaiting) {
    state_->waiting.push_back(std::move(stranger));
    state_->changed.notify_all();
  } else if (const auto gateway = state_->gateway.lock()) {
    gateway->refuse(stranger, Error(Code::kUnavailable, "identity: too many tokens wait"));
  }
}

}  // namespace starling::actors
