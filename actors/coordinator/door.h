#pragma once
// The door bounds what waits for a coordinator's actor: the gateway's thread hands over only
// what the door lets in, and drops the messages that it turns away. Nothing is lost by that: a
// worker repeats a question until it is answered, and a step until a coordinator has noted it.

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "actors/gateway/gateway.h"
#include "core/base/mutex.h"

namespace starling::actors {

// Threads: any.
class Door {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{32} << 20;
  // Bytes of steps with their ledgers, so that they cannot keep elections and reports out.
  static constexpr std::size_t kStepBytesMax = std::size_t{16} << 20;

  // Returns false: do not hand it over. A message that was let in must leave() before it is read.
  bool enter(const Arrival& arrival);
  void leave(const Arrival& arrival);
  std::uint64_t turned_away() const;  // for want of room; repeats of waiting steps do not count

 private:
  mutable Mutex mutex_;
  std::size_t bytes_ STARLING_GUARDED_BY(mutex_) = 0;
  std::size_t step_bytes_ STARLING_GUARDED_BY(mutex_) = 0;
  // Steps that wait, by sender.
  std::set<std::pair<Nonce, Version>> steps_ STARLING_GUARDED_BY(mutex_);
  std::uint64_t turned_away_ STARLING_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling::actors
