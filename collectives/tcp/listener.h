#pragma once
// Listener is where peers dial in: one per worker process, for all its epochs.
//
// Accepted sockets go through the handshake (handshake.h) in the listener's thread and are handed
// to the Mesh of their epoch. A peer may dial before this worker knows the plan: such sockets wait,
// bounded in number and time. Nothing beyond the handshake's fixed-size messages is read here, and
// nothing at all from a socket that does not prove the epoch's key (P8).

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/tcp/dialler.h"
#include "collectives/tcp/handshake.h"
#include "collectives/tcp/newcomers.h"
#include "collectives/tcp/socket.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "core/base/result.h"

namespace starling::collectives {

struct ListenerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;                             // 0: any free one
  std::chrono::milliseconds handshake_timeout{2000};  // from accept to proof, waiting included
  // Most sockets that shake hands or wait. A newer one evicts the oldest of the address with most.
  std::size_t sockets_max = 256;
};

struct ListenerCounters {
  std::uint64_t accepted = 0;
  std::uint64_t admitted = 0;
  std::uint64_t refused = 0;  // malformed hello, not a member, or wrong MAC
  std::string last_refusal;   // why the last was, where there is more to say
  std::uint64_t timed_out = 0;
  std::uint64_t evicted = 0;
  std::uint64_t paused = 0;  // times that it stopped to accept, as no file could be opened
};

// Threads: all functions from any thread.
class Listener {
 public:
  // Errors: kBadInput  the address cannot be bound; names it
  static Result<std::unique_ptr<Listener>> open(const ListenerOptions& options);
  ~Listener();  // closes and joins; all meshes must be gone
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const { return port_; }
  ListenerCounters counters() const;

  // Used by Mesh: connections of this epoch that have proved themselves go to `adopt`, which must
  // not block. After remove() returns `adopt` does not run any more.
  using Adopt = std::function<void(Rank, Stood)>;
  void add(EpochSecret secret, Adopt adopt);
  void remove(const EpochId& epoch);

 private:
  struct Pending;
  struct Registered {
    EpochSecret secret;
    Adopt adopt;
  };
  Listener(const ListenerOptions& options, Bound bound);
  void run();
  void accept_all(const Fd& socket);
  bool make_room();
  void pause(bool on);
  void evict(int fd);
  void forget(int fd);
  void on_readable(Pending& pending);
  void on_prefix(Pending& pending);
  void try_answer(Pending& pending);
  void refuse_locked(Pending& pending, const std::string& why) STARLING_REQUIRES(mutex_);
  void finish(Pending& pending);
  void close_expired();

  const ListenerOptions options_;
  const std::uint16_t port_;
  const Fd tcp_, local_, epoll_, wake_;
  std::atomic<bool> stopping_{false};
  // Owned by the thread:
  std::map<int, std::unique_ptr<Pending>> pending_;
  Newcomers newcomers_;  // the same ones
  std::optional<std::chrono::steady_clock::time_point> paused_until_;
  mutable Mutex mutex_;
  std::map<EpochId, Registered> epochs_ STARLING_GUARDED_BY(mutex_);
  ListenerCounters counters_ STARLING_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace starling::collectives
