#include "actors/guard/guard.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/mac.h"

namespace starling::actors {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A death is told again this often for this long: a coordinator may be busy electing a leader.
constexpr milliseconds kRepeat{50};
constexpr milliseconds kTelling{300};

Error system_error(const char* what) {
  return Error(Code::kUnavailable, std::string(what) + ": " + std::strerror(errno));
}

// A mutex in memory shared with the child, held by the child's main thread while it lives.
class LifeLock {
 public:
  static Result<std::unique_ptr<LifeLock>> make() {
    void* page = ::mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return system_error("cannot map memory for a worker's lock");
    auto* mutex = ::new (page) pthread_mutex_t;
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    STARLING_CHECK(::pthread_mutex_init(mutex, &attributes) == 0);
    ::pthread_mutexattr_destroy(&attributes);
    return std::unique_ptr<LifeLock>(new LifeLock(mutex));
  }
  ~LifeLock() { ::munmap(mutex_, sizeof *mutex_); }
  LifeLock(const LifeLock&) = delete;
  LifeLock& operator=(const LifeLock&) = delete;

  void hold() { STARLING_CHECK(::pthread_mutex_lock(mutex_) == 0); }
  void let_go() { ::pthread_mutex_unlock(mutex_); }
  // Waits for the holder's end. True: it died holding the lock.
  bool wait() {
    const bool died = ::pthread_mutex_lock(mutex_) == EOWNERDEAD;
    if (died) ::pthread_mutex_consistent(mutex_);
    ::pthread_mutex_unlock(mutex_);
    return died;
  }

 private:
  explicit LifeLock(pthread_mutex_t* mutex) : mutex_(mutex) {}
  pthread_mutex_t* const mutex_;
};

sigset_t guarded_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&set, s);
  return set;
}

[[noreturn]] void live(LifeLock& lock, int ready, const std::function<int()>& worker) {
  lock.hold();
  const char byte = 1;
  const bool told = ::write(ready, &byte, 1) == 1;
  ::close(ready);
  const int status = told ? worker() : 5;
  // Any other end is a death to be told: peers need not wait for the lease.
  if (status == 0 || status == kFencedStatus) lock.let_go();
  std::fflush(nullptr);
  ::_exit(status);
}

// Waits until the child is gone; passes signals on to it.
int attend(pid_t child) {
  const sigset_t set = guarded_signals();
  for (;;) {
    int status = 0;
    const pid_t gone = ::waitpid(child, &status, WNOHANG);
    if (gone == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    STARLING_CHECK(gone == 0 || errno == EINTR);
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&set, &info);
    if (signal == SIGTERM || signal == SIGINT) ::kill(child, signal);
  }
}

int keep_watch(const GuardOptions& options, LifeLock& lock, pid_t child) {
  GatewayOptions gateway;
  gateway.job = options.job;
  std::uint8_t nonce[8];
  random_bytes(nonce);
  std::memcpy(&gateway.self.nonce, nonce, sizeof nonce);
  gateway.self.nonce |= 1;
  gateway.key = options.key;
  gateway.servers = options.coordinators;
  auto started = Gateway::start(std::move(gateway), [](Arrival) {});
  // Without it deaths are noticed later; the worker itself says what is wrong with the address.
  const auto door = started ? std::move(started).value() : nullptr;

  std::atomic<bool> died = false, gone = false;
  std::thread watcher([&] {
    died = lock.wait();
    if (!died || !door) return;
    const auto begun = Clock::now();
    while (!gone || Clock::now() - begun < kTelling) {
      door->broadcast_to_servers(Death{options.worker});
      std::this_thread::sleep_for(kRepeat);
    }
  });
  const int status = attend(child);
  gone = true;
  watcher.join();
  return status;
}

}  // namespace

Result<int> run_guard(const GuardOptions& options, const std::function<int()>& worker) {
  STARLING_TRY(lock, LifeLock::make());
  int ready[2];
  if (::pipe(ready) != 0) return system_error("cannot make a pipe");
  const sigset_t set = guarded_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  std::fflush(nullptr);  // else both processes would write what is buffered
  const pid_t child = ::fork();
  if (child < 0) return system_error("cannot start a worker process");
  if (child == 0) {
    ::close(ready[0]);
    live(*lock, ready[1], worker);
  }
  ::close(ready[1]);
  char byte = 0;  // end of file: it died before it held the lock, which is not waited for then
  while (::read(ready[0], &byte, 1) < 0 && errno == EINTR) {
  }
  ::close(ready[0]);
  return byte == 1 ? keep_watch(options, *lock, child) : attend(child);
}

}  // namespace starling::actors
