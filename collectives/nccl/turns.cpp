#include "collectives/nccl/turns.h"

#include "core/base/check.h"

namespace starling::collectives::nccl {

Turns::Ticket Turns::ask() {
  const std::lock_guard lock(mutex_);
  tickets_.insert(next_);
  return next_++;
}

bool Turns::wait(Ticket ticket, std::chrono::steady_clock::time_point deadline,
                 const std::atomic<bool>& given_up) {
  std::unique_lock lock(mutex_);
  const auto first = [&] { return *tickets_.begin() == ticket; };
  changed_.wait_until(lock, deadline, [&] { return first() || given_up; });
  return first() && !given_up;
}

void Turns::look() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Turns::give_back(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto erased = tickets_.erase(ticket);
  STARLING_CHECK(erased == 1);
  changed_.notify_all();
}

}  // namespace starling::collectives::nccl
