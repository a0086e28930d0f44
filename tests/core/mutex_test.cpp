#include "core/base/mutex.h"

#include <doctest/doctest.h>

#include <thread>

namespace starling {
namespace {

class GuardedSum {
 public:
  void add(int n) {
    const MutexLock lock(mutex_);
    sum_ += n;
    changed_.notify_all();
  }
  // Returns the sum when it is at least `n`.
  int wait_for(int n) {
    const MutexLock lock(mutex_);
    while (sum_ < n) changed_.wait(mutex_);
    return sum_;
  }
  // Returns the same, or what the sum is at the deadline.
  int wait_for(int n, std::chrono::steady_clock::time_point deadline) {
    const MutexLock lock(mutex_);
    while (sum_ < n && changed_.wait_until(mutex_, deadline)) continue;
    return sum_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int sum_ STARLING_GUARDED_BY(mutex_) = 0;
};

// Method: two threads take turns; a wait that kept the lock, or came back without it, would hang or abort.
TEST_CASE("mutex: a wait gives the lock to others and has it again at its end") {
  constexpr int kTurns = 1000;
  GuardedSum sum;
  std::thread other([&sum] {
    for (int i = 1; i <= kTurns; ++i) {
      sum.wait_for(2 * i - 1);
      sum.add(1);
    }
  });
  for (int i = 1; i <= kTurns; ++i) {
    sum.add(1);
    sum.wait_for(2 * i);
  }
  other.join();
  CHECK(sum.wait_for(0) == 2 * kTurns);
}

TEST_CASE("mutex: a wait ends at its deadline, and at once when that is over") {
  GuardedSum sum;
  const auto begun = std::chrono::steady_clock::now();
  const auto deadline = begun + std::chrono::milliseconds(20);
  CHECK(sum.wait_for(1, deadline) == 0);
  CHECK(std::chrono::steady_clock::now() >= deadline);
  CHECK(sum.wait_for(1, begun) == 0);
  sum.add(1);
  CHECK(sum.wait_for(1, begun) == 1);
}

TEST_CASE("mutex: a lock can be given back and taken again within its scope") {
  GuardedSum sum;
  Mutex mutex;
  {
    MutexLock lock(mutex);
    lock.unlock();
    std::thread([&] {
      const MutexLock other(mutex);
      sum.add(1);
    }).join();
    lock.lock();
  }
  const MutexLock lock(mutex);
  CHECK(sum.wait_for(1) == 1);
}

}  // namespace
}  // namespace starling
