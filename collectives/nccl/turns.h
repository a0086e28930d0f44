#pragma once
// Who may have a communicator, in the order of asking: one in use, and beside it the next epoch's, which
// is being made. Only the first may have kernels: those of two could wait for each other's places on the
// device. Beside one that ends none is begun: CUDA gives that one's memory back when the kernels of all
// others of the device have ended, and what making one allocates waits for kernels that hang.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace starling::collectives::nccl {

// Threads: any.
class Turns {
 public:
  using Ticket = std::uint64_t;

  Ticket ask();
  // Until a communicator may be made: of the tickets from before none is out, or a single one whose
  // communicator is not ending. False: `deadline` is over, `given_up` is true, or it is closed.
  bool wait_to_make(Ticket ticket, std::chrono::steady_clock::time_point deadline,
                    const std::atomic<bool>& given_up);
  // Until all who asked before have given their tickets back: kernels may run. However long the epoch
  // before goes on. False: `given_up` is true, or it is closed.
  bool wait_to_use(Ticket ticket, const std::atomic<bool>& given_up);
  // The ticket's communicator is ending from now on. All waits look again: a caller that sets the
  // `given_up` of a ticket calls ends() for that ticket afterwards.
  void ends(Ticket ticket);
  // Once for every ticket, whether it had its turn or not.
  void give_back(Ticket ticket);
  // Nobody has a turn any more, as a ticket will not come back. The first reason stays.
  void close(const std::string& why);
  std::string closed() const;  // why; empty: it is not

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string closed_;
  Ticket next_ = 0;
  std::map<Ticket, bool> ends_;  // of each ticket that is out: whether its communicator is ending
};

}  // namespace starling::collectives::nccl
