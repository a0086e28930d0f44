#pragma once
// Newcomers keeps the connections that have not identified themselves yet, and says which of them
// go when they are too many: the oldest of the address that has most, so that a flood from one
// machine takes the room of that machine alone.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "collectives/tcp/socket.h"

namespace starling::collectives {

// Threads: one.
class Newcomers {
 public:
  using Clock = std::chrono::steady_clock;
  // A connection older than `patience` has been let in: the handshake's time is over then.
  Newcomers(std::size_t max, Clock::duration patience) : max_(max), patience_(patience) {}

  // Adds a connection of this number and address. Returns the one that has to go, if one has.
  struct Connection {
    int number = -1;
    PeerAddress from;
  };
  std::optional<Connection> came(Connection connection, Clock::time_point now);
  // The connection that would have to go next; none if there are none.
  std::optional<Connection> next_to_go() const;
  // The connection has identified itself, or is gone.
  void settled(int number);
  std::size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    Connection connection;
    Clock::time_point came;
    std::uint64_t order = 0;
  };
  const std::size_t max_;
  const Clock::duration patience_;
  std::map<int, Waiting> waiting_;             // by number
  std::map<std::string, std::size_t> counts_;  // by address
  std::uint64_t clock_ = 0;
};

}  // namespace starling::collectives
