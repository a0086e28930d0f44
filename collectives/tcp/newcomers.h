#pragma once
// Which connections have not shown yet who they are, and which of them go when they are too many.
// Where one address has most of them its oldest goes, so that a flood from one machine takes the
// room of that machine alone.

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
  // Whoever is still there after `patience` has been let in: the handshake's time is over then.
  Newcomers(std::size_t max, Clock::duration patience) : max_(max), patience_(patience) {}

  // A connection under this number, from this address. Gives the one that has to go, if one has.
  struct Connection {
    int number = -1;
    PeerAddress from;
  };
  std::optional<Connection> came(Connection connection, Clock::time_point now);
  // Of all the one that would have to go next; none if there are none.
  std::optional<Connection> next_to_go() const;
  // It has shown who it is, or is gone.
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
