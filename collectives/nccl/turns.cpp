#include "collectives/nccl/turns.h"

#include <iterator>

#include "core/base/check.h"

namespace starling::collectives::nccl {

Turns::Ticket Turns::ask() {
  const MutexLock lock(mutex_);
  ends_.emplace(next_, false);
  return next_++;
}

bool Turns::wait_to_make(Ticket ticket, std::chrono::steady_clock::time_point deadline,
                         const std::atomic<bool>& given_up) {
  const MutexLock lock(mutex_);
  while (!may_make(ticket) && !given_up && closed_.empty())
    if (!changed_.wait_until(mutex_, deadline)) break;
  return may_make(ticket) && !given_up && closed_.empty();
}

bool Turns::may_make(Ticket ticket) const {
  const auto first = ends_.begin();
  return first->first == ticket || (std::next(first)->first == ticket && !first->second);
}

bool Turns::wait_to_use(Ticket ticket, const std::atomic<bool>& given_up) {
  const MutexLock lock(mutex_);
  while (ends_.begin()->first != ticket && !given_up && closed_.empty()) changed_.wait(mutex_);
  return !given_up && closed_.empty();
}

void Turns::ends(Ticket ticket) {
  const MutexLock lock(mutex_);
  // The owner may give up a transport whose ticket is already back.
  if (const auto it = ends_.find(ticket); it != ends_.end()) it->second = true;
  changed_.notify_all();
}

void Turns::give_back(Ticket ticket) {
  const MutexLock lock(mutex_);
  const auto erased = ends_.erase(ticket);
  STARLING_CHECK(erased == 1);
  changed_.notify_all();
}

void Turns::close(const std::string& why) {
  const MutexLock lock(mutex_);
  if (closed_.empty()) closed_ = why;
  changed_.notify_all();
}

std::string Turns::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

}  // namespace starling::collectives::nccl
