#pragma once
// Mutex, MutexLock and CondVar wrap those of libstdc++, which have no annotations, for clang's Thread Safety
// Analysis (tests/tidy/threads.py): a field's declaration names the mutex that guards the field, and clang finds
// code that reads or writes the field without that mutex. The macros have the names of clang's documentation;
// the wrappers cost no more than the wrapped classes.
//
// A lambda is analysed as a function of its own: one that runs under the lock says STARLING_REQUIRES. Constructors
// and destructors of the class that owns the mutex are not checked.

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define STARLING_THREAD_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define STARLING_THREAD_ATTRIBUTE(...)
#endif

#define STARLING_CAPABILITY(name) STARLING_THREAD_ATTRIBUTE(capability(name))
#define STARLING_SCOPED_CAPABILITY STARLING_THREAD_ATTRIBUTE(scoped_lockable)
#define STARLING_GUARDED_BY(mutex) STARLING_THREAD_ATTRIBUTE(guarded_by(mutex))
#define STARLING_REQUIRES(...) STARLING_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define STARLING_EXCLUDES(...) STARLING_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define STARLING_ACQUIRE(...) STARLING_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define STARLING_RELEASE(...) STARLING_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define STARLING_NO_THREAD_SAFETY_ANALYSIS STARLING_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace starling {

class STARLING_CAPABILITY("mutex") Mutex {
 public:
  void lock() STARLING_ACQUIRE() { mutex_.lock(); }
  void unlock() STARLING_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex from here to the end of its scope, but for what lies between unlock() and lock().
class STARLING_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) STARLING_ACQUIRE(mutex) : lock_(mutex) {}
  ~MutexLock() STARLING_RELEASE() = default;
  void lock() STARLING_ACQUIRE() { lock_.lock(); }
  void unlock() STARLING_RELEASE() { lock_.unlock(); }

 private:
  std::unique_lock<Mutex> lock_;
};

// A condition variable without predicates, which the analysis does not follow: the caller waits in a loop.
//   while (!ready_) changed_.wait(mutex_);
//   while (!ready_ && changed_.wait_until(mutex_, deadline)) continue;
class CondVar {
 public:
  void wait(Mutex& mutex) STARLING_REQUIRES(mutex) {
    std::unique_lock held(mutex.mutex_, std::adopt_lock);
    changed_.wait(held);
    held.release();
  }
  // False: the deadline is over.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      STARLING_REQUIRES(mutex) {
    std::unique_lock held(mutex.mutex_, std::adopt_lock);
    const auto status = changed_.wait_until(held, deadline);
    held.release();
    return status == std::cv_status::no_timeout;
  }
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace starling
