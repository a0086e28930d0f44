#pragma once
// Strangers keeps the connections of a server that takes identities until their keys are let in, and says which of
// them have to go: those over which nothing comes, those whose keys are not let in in time, and, when they are too
// many, the oldest of the address that has most. For the gateway only.
//
// Every client of ours says something at once (ZMQ_PROBE_ROUTER), so that a connection over which nothing has come is
// none of ours. libzmq tells a server of a connection's file when it is accepted, and of its key with its first message.

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "collectives/tcp/newcomers.h"

namespace starling::actors {

// Threads: one.
class Strangers {
 public:
  using Clock = std::chrono::steady_clock;
  using Connection = collectives::Newcomers::Connection;

  Strangers(std::size_t max, Clock::duration patience)
      : patience_(patience), spoke_(max, std::chrono::hours(1)) {}

  // A connection was accepted, and nothing has come over it.
  void accepted(const Connection& connection, Clock::time_point now);
  // The owner of a key that is not let in has said something. Returns the connection that has to go, if one has.
  std::optional<Connection> spoke(const Connection& connection, Clock::time_point now);
  // Its token is looked at, which may take a while.
  void shown(int number, Clock::time_point now);
  // The connection's key is let in, or it is gone.
  void settled(int number);
  // Returns those whose time is over, and forgets them.
  std::vector<Connection> overdue(Clock::time_point now);
  bool any() const { return !waiting_.empty(); }

 private:
  struct Waiting {
    Connection connection;
    Clock::time_point until;
    bool has_spoken = false;
  };
  const Clock::duration patience_;
  std::map<int, Waiting> waiting_;  // by number
  collectives::Newcomers spoke_;    // those of waiting_ that have spoken
};

}  // namespace starling::actors
