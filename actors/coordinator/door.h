#pragma once
// What waits for a coordinator's actor is bounded: the gateway's thread hands over only what the
// door lets in, and drops the messages that the door turns away. Nothing is lost by that: a worker
// repeats a question until it has an answer, and sends a step again until a coordinator has noted it.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "actors/gateway/gateway.h"

namespace starling::actors {

// Threads: any.
class Door {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{32} << 20;
  // Of steps with their ledgers, so that they cannot keep elections and reports out.
  static constexpr std::size_t kStepBytesMax = std::size_t{16} << 20;

  // False: it is not to be handed over. What is let in must leave() before it is looked at.
  bool enter(const Arrival& arrival);
  void leave(const Arrival& arrival);
  std::uint64_t turned_away() const;  // for want of room; not what waits already

 private:
  mutable std::mutex mutex_;  // guards all
  std::size_t bytes_ = 0, step_bytes_ = 0;
  std::set<std::pair<Nonce, Version>> steps_;  // that wait, of this sender
  std::uint64_t turned_away_ = 0;
};

}  // namespace starling::actors
