#pragma once
// The dialling side of one connection until it stands: connect, handshake, and again after a while
// when either fails, since the peer may not listen or not know the plan yet. A name may have several
// addresses: all are tried, one after the other, and then it is looked up again.

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/tcp/handshake.h"
#include "collectives/tcp/socket.h"

namespace starling::collectives {

struct DialTarget {
  Rank rank = 0;
  std::string host;
  std::uint16_t port = 0;
  bool local = false;  // try a local socket first, then in turn with TCP
};

// A connection whose handshake is over.
struct Stood {
  Fd socket;
  ConnectionKeys keys;
};

// Threads: one. Ownership: borrows secret and epoll.
class Dialler {
 public:
  using Clock = std::chrono::steady_clock;

  // Events of its sockets carry `tag`. An attempt may take `timeout` to be answered.
  Dialler(const EpochSecret& secret, DialTarget target, const Fd& epoll, std::uint64_t tag,
          std::chrono::milliseconds timeout);

  // Begins an attempt or gives one up, if it is time; to be called at wake_at() at the latest.
  void on_time(Clock::time_point now);
  Clock::time_point wake_at() const { return wake_at_; }
  // The socket is ready for something. Returns it, out of the epoll set, when the peer has admitted
  // us; else nothing.
  std::optional<Stood> on_event(Clock::time_point now);

  // Why the last attempt failed; empty if none has.
  const std::string& failure() const { return failure_; }
  // Trying again is of no use: no process listens at any address (ECONNREFUSED; a worker listens
  // before it joins, so it is gone or never was), or what listens there speaks another version.
  bool refused() const { return refused_; }

 private:
  enum class Phase { kIdle, kConnecting, kAwaitPrefix, kAwaitAnswer, kAwaitAdmit };
  std::size_t expected() const;  // bytes of the peer's in this phase
  void dial(Clock::time_point now);
  bool on_connected();
  void on_prefix(Clock::time_point now);
  bool on_answer(Clock::time_point now);
  void give_up(std::string why, Clock::time_point now, bool nobody_listens = false);
  void watch(int operation, std::uint32_t events);

  const EpochSecret& secret_;
  const DialTarget target_;
  const Fd& epoll_;
  const std::uint64_t tag_;
  const std::chrono::milliseconds timeout_;
  Phase phase_ = Phase::kIdle;
  bool try_local_;
  Clock::time_point wake_at_{};
  std::chrono::milliseconds backoff_{5};
  std::vector<std::string> addresses_;  // of the name, those not tried yet last
  std::size_t next_ = 0;                // of them
  bool listens_ = false;                // at one address of this round a process may listen
  Fd socket_;
  Hello hello_;
  Answer answer_;
  bool at_local_ = false;  // this attempt goes to the local socket
  std::array<std::uint8_t, sizeof(Answer)> buffer_{};
  std::size_t have_ = 0;
  std::string failure_;
  bool refused_ = false;
};

}  // namespace starling::collectives
