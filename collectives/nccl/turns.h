#pragma once
// Who may have a communicator: one at a time, in the order of asking. NCCL's memory of one that ends
// is given back by CUDA only when the kernels of all others of the device have ended, too.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

namespace starling::collectives::nccl {

// Threads: any.
class Turns {
 public:
  using Ticket = std::uint64_t;

  Ticket ask();
  // Until all who asked before have given theirs back. False: `deadline` is over or `given_up` is
  // true; whoever sets it calls look() then.
  bool wait(Ticket ticket, std::chrono::steady_clock::time_point deadline,
            const std::atomic<bool>& given_up);
  void look();
  // Once for every ticket, whether it had its turn or not.
  void give_back(Ticket ticket);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Ticket next_ = 0;
  std::set<Ticket> tickets_;
};

}  // namespace starling::collectives::nccl
