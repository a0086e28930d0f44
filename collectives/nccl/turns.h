#pragma once
// Turns says which transports may have a communicator, in the order of asking: one in use, and the
// next epoch's, which is being made. Only the first may have kernels: those of two could wait for
// each other's places on the device. No communicator is made while another ends: CUDA frees memory
// when all kernels of the device have ended, and allocating for a new one waits for kernels that
// hang.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "core/base/mutex.h"

namespace starling::collectives::nccl {

// Threads: any.
class Turns {
 public:
  using Ticket = std::uint64_t;

  Ticket ask();
  // Waits until a communicator may be made: of the older tickets none is out, or a single one whose
  // communicator is not ending. False: `deadline` is over, `given_up` is true, or it is closed.
  bool wait_to_make(Ticket ticket, std::chrono::steady_clock::time_point deadline,
                    const std::atomic<bool>& given_up);
  // Waits until all older tickets are back: kernels may run then. It waits however long the epoch
  // before goes on. False: `given_up` is true, or it is closed.
  bool wait_to_use(Ticket ticket, const std::atomic<bool>& given_up);
  // Marks the ticket's communicator as ending. All waits look again: a caller that sets the
  // `given_up` of a ticket calls ends() for that ticket afterwards.
  void ends(Ticket ticket);
  // Returns a ticket. Once for every ticket, whether it had its turn or not.
  void give_back(Ticket ticket);
  // Ends all turns, as a ticket will not come back. The first reason stays.
  void close(const std::string& why);
  std::string closed() const;  // why; empty: it is not

 private:
  bool may_make(Ticket ticket) const STARLING_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::string closed_ STARLING_GUARDED_BY(mutex_);
  Ticket next_ STARLING_GUARDED_BY(mutex_) = 0;
  // Of each ticket that is out: whether its communicator is ending.
  std::map<Ticket, bool> ends_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling::collectives::nccl
