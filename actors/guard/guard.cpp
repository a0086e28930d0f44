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
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/mac.h"
#include "core/base/signals.h"
#include "core/base/system_error.h"

namespace starling::actors {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The guard repeats a death this often for this long: a leader may be being
// elected. Shorter if the guard itself was told to end: then all of the run ends.
constexpr milliseconds kRepeat{50};
constexpr milliseconds kTelling{1000};
constexpr milliseconds kTellingAtTheEnd{300};
constexpr milliseconds kAskForEnd{500};

// LifeLock is memory shared with the child: a mutex, held by the child's
// main thread while it lives, and the SharedLife that the child writes.
class LifeLock {
 public:
  static Result<std::unique_ptr<LifeLock>> make() {
    void* memory =
        ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return unavailable("cannot map memory for a worker's lock");
    auto* page = ::new (memory) Page;
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    STARLING_CHECK(::pthread_mutex_init(&page->mutex, &attributes) == 0);
    ::pthread_mutexattr_destroy(&attributes);
    return std::unique_ptr<LifeLock>(new LifeLock(page));
  }
  ~LifeLock() { ::munmap(page_, sizeof *page_); }
  LifeLock(const LifeLock&) = delete;
  LifeLock& operator=(const LifeLock&) = delete;

  void hold() { STARLING_CHECK(::pthread_mutex_lock(&page_->mutex) == 0); }
  void let_go() { ::pthread_mutex_unlock(&page_->mutex); }
  SharedLife& life() { return page_->life; }
  std::string reason() const {  // valid once the holder has died
    const auto& text = page_->life.reason;
    return {text.data(), ::strnlen(text.data(), text.size())};
  }
  // Waits for the holder's end. True: the holder died with the lock.
  bool wait() {
    const bool died = ::pthread_mutex_lock(&page_->mutex) == EOWNERDEAD;
    if (died) ::pthread_mutex_consistent(&page_->mutex);
    ::pthread_mutex_unlock(&page_->mutex);
    return died;
  }

 private:
  struct Page {
    pthread_mutex_t mutex;
    SharedLife life;
  };
  static_assert(std::atomic<WorkPhase>::is_always_lock_free);
  explicit LifeLock(Page* page) : page_(page) {}
  Page* const page_;
};

sigset_t guarded_signals() {
  sigset_t set = blocked_in_children();
  ::sigaddset(&set, SIGCHLD);
  return set;
}

[[noreturn]] void live(LifeLock& lock, int ready, const std::function<int(SharedLife&)>& worker) {
  lock.hold();
  const char byte = 1;
  const bool told = ::write(ready, &byte, 1) == 1;
  ::close(ready);
  const int status = told ? worker(lock.life()) : 5;
  // Any other end is a death that the guard tells: peers need not wait for the lease.
  const bool no_death =
      status == 0 || status == kFencedStatus || status == kNotHereStatus || lock.life().over;
  if (no_death) lock.let_go();
  std::fflush(nullptr);
  ::_exit(status);
}

// Waits until the child is gone; passes signals on to it, and sets `ending` when one came.
int attend(pid_t child, std::atomic<bool>& ending) {
  const sigset_t set = guarded_signals();
  for (;;) {
    int status = 0;
    const pid_t gone = ::waitpid(child, &status, WNOHANG);
    if (gone == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    STARLING_CHECK(gone == 0 || errno == EINTR);
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&set, &info);
    if (signal < 0 || signal == SIGCHLD) continue;
    ending = true;
    if (signal == order_signal())
      ::sigqueue(child, signal, info.si_value);
    else
      ::kill(child, signal);
  }
}

// Returns whether the child got its lock; on end of file it died before. Blocks: it may be stopped.
bool is_held(int ready) {
  char byte = 0;
  while (::read(ready, &byte, 1) < 0 && errno == EINTR) {
  }
  ::close(ready);
  return byte == 1;
}

// `ready`: the end of a pipe that is_held() reads and closes.
int keep_watch(const GuardOptions& options, LifeLock& lock, pid_t child, int ready) {
  GatewayOptions gateway = gateway_options(options);
  gateway.self = Incarnation{0, fresh_nonce()};  // the guard's own
  std::atomic<bool> ending = false;
  std::atomic<int> too_late{-1};  // the status, if the job was over before the worker listened
  const auto hear = [&](const Arrival& arrival) {
    const auto* seats = std::get_if<Seats>(&arrival.body);
    if (seats && options.moved) options.moved(*seats);
    const auto* end = std::get_if<Ended>(&arrival.body);
    if (!end || !options.too_late || lock.life().listens || too_late >= 0) return;
    too_late = options.too_late(*end);
    lock.life().over = true;
    ::kill(child, SIGKILL);
  };
  auto started = Gateway::start(std::move(gateway), hear);
  // Without a gateway, deaths are noticed later; the worker itself reports a wrong address.
  const auto door = started ? std::move(started).value() : nullptr;

  std::atomic<bool> gone = false;
  // Coordinators answer any message of an unknown sender with the job's end, when there is one.
  std::thread asker([&] {
    while (door && !gone && !lock.life().listens) {
      door->broadcast_to_servers(Heartbeat{});
      for (int i = 0; i < 10 && !gone; ++i) std::this_thread::sleep_for(kAskForEnd / 10);
    }
  });
  std::thread watcher([&] {
    if (!is_held(ready) || !lock.wait() || !door || lock.life().over) return;
    const auto begun = Clock::now();
    const auto patience = [&] { return ending ? kTellingAtTheEnd : kTelling; };
    while (!gone || Clock::now() - begun < patience()) {
      door->broadcast_to_servers(
          Death{options.self, lock.life().phase, lock.reason(), lock.life().exit_code});
      std::this_thread::sleep_for(kRepeat);
    }
  });
  const int status = attend(child, ending);
  gone = true;
  watcher.join();
  asker.join();
  return too_late >= 0 ? too_late.load() : status;
}

}  // namespace

Result<int> run_guard(const GuardOptions& options, const std::function<int(SharedLife&)>& worker) {
  STARLING_TRY(lock, LifeLock::make());
  int ready[2];
  if (::pipe(ready) != 0) return unavailable("cannot make a pipe");
  const sigset_t set = guarded_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  std::fflush(nullptr);  // else both processes would write what is buffered
  const pid_t child = ::fork();
  if (child < 0) return unavailable("cannot start a worker process");
  if (child == 0) {
    ::close(ready[0]);
    live(*lock, ready[1], worker);
  }
  ::close(ready[1]);
  return keep_watch(options, *lock, child, ready[0]);
}

}  // namespace starling::actors
