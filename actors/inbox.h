#pragma once
// An inbox takes messages of actors for a thread that is no actor,
// such as main(), which looks after signals between two messages.
//
// A blocking actor of CAF 0.17 waits until a time of the system clock (`receive` with
// `caf::after`): set back by an hour while it waits, the thread sleeps for an hour. An inbox waits by
// the monotonic clock.

#include <caf/event_based_actor.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "core/base/mutex.h"

namespace starling::actors {

// An actor that was watched has ended.
struct WatchedEnded {};

// ThreadInbox takes messages of the kinds `Said`, in the order of each sender.
//
// Threads: take() and watch() belong to one; actors may send at any time. Ownership:
// the actor system must outlive it. Messages that come after its end are dropped.
template <class... Said>
class ThreadInbox {
 public:
  using Word = std::variant<WatchedEnded, Said...>;

  explicit ThreadInbox(caf::actor_system& system)
      : address_(system.spawn(&ThreadInbox::behavior_of, words_)) {}
  ~ThreadInbox() { caf::anon_send_exit(address_, caf::exit_reason::user_shutdown); }
  ThreadInbox(const ThreadInbox&) = delete;
  ThreadInbox& operator=(const ThreadInbox&) = delete;

  const caf::actor& address() const { return address_; }
  // Makes the end of this actor a message (WatchedEnded), after all that the actor sent before.
  void watch(const caf::actor& other) { caf::anon_send(address_, other); }

  // Returns the next message; nothing if none comes within `patience`.
  std::optional<Word> take(std::chrono::milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    const MutexLock lock(words_->mutex);
    while (words_->waiting.empty() && words_->came.wait_until(words_->mutex, until)) continue;
    if (words_->waiting.empty()) return std::nullopt;
    Word word = std::move(words_->waiting.front());
    words_->waiting.pop_front();
    return word;
  }

 private:
  struct Words {
    void put(Word word) {
      const MutexLock lock(mutex);
      waiting.push_back(std::move(word));
      came.notify_one();
    }
    Mutex mutex;
    CondVar came;
    std::deque<Word> waiting STARLING_GUARDED_BY(mutex);
  };
  static caf::behavior behavior_of(caf::event_based_actor* self, std::shared_ptr<Words> words) {
    self->set_down_handler([words](const caf::down_msg&) { words->put(WatchedEnded{}); });
    return {[self](const caf::actor& other) { self->monitor(other); },
            [words](const Said& said) { words->put(said); }...};
  }

  const std::shared_ptr<Words> words_ = std::make_shared<Words>();
  const caf::actor address_;
};

}  // namespace starling::actors
