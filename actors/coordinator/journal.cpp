#include "actors/coordinator/journal.h"

#include <chrono>
#include <utility>

#include "core/base/check.h"
#include "core/base/thread_name.h"

namespace starling::actors {
namespace {

constexpr std::chrono::seconds kPatience{2};  // at the end, for a write under way

constexpr std::chrono::seconds kLogChecks{1};

Result<> write(RaftLog& log, const elastic::coordinator_command::Persist& order) {
  std::optional<RaftTerm> term;
  if (order.hard_state) {
    const elastic::HardState& hard = *order.hard_state;
    term = RaftTerm{hard.term, hard.vote, hard.lost, hard.floor.term, hard.floor.index};
  }
  std::optional<RaftLogSnapshot> snapshot;
  if (order.snapshot)
    snapshot = RaftLogSnapshot{order.snapshot->index, order.snapshot->term, order.snapshot->data,
                               order.snapshot->members};
  return log.save(term, order.append, snapshot);
}

}  // namespace

struct Journal::Shared {
  Shared(RaftLog opened, Saved told) : log(std::move(opened)), saved(std::move(told)) {}

  RaftLog log;  // of the thread
  const Saved saved;
  Mutex mutex;
  CondVar changed;
  std::optional<elastic::coordinator_command::Persist> order STARLING_GUARDED_BY(mutex);
  bool stopped STARLING_GUARDED_BY(mutex) = false;
  bool over STARLING_GUARDED_BY(mutex) = false;  // the thread has ended
};

Journal::Journal(RaftLog log, Saved saved)
    : shared_(std::make_shared<Shared>(std::move(log), std::move(saved))),
      thread_([shared = shared_] {
        name_thread("log");
        work(shared);
      }) {}

Journal::~Journal() {
  MutexLock lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!shared_->over && shared_->changed.wait_until(shared_->mutex, until)) continue;
  const bool over = shared_->over;
  lock.unlock();
  if (over)
    thread_.join();
  else
    thread_.detach();
}

void Journal::save(elastic::coordinator_command::Persist order) {
  const MutexLock lock(shared_->mutex);
  STARLING_CHECK(!shared_->order);
  shared_->order = std::move(order);
  shared_->changed.notify_all();
}

void Journal::work(const std::shared_ptr<Shared>& shared) {
  MutexLock lock(shared->mutex);
  for (;;) {
    const auto until = std::chrono::steady_clock::now() + kLogChecks;
    while (!shared->stopped && !shared->order)
      if (!shared->changed.wait_until(shared->mutex, until)) break;
    if (shared->stopped) break;
    if (!shared->order) {  // save() would notice it too, but there may be nothing to save for long
      lock.unlock();
      auto there = shared->log.check();
      lock.lock();
      if (!there && !shared->stopped) shared->saved(std::move(there));
      if (!there) break;
      continue;
    }
    const auto order = *shared->order;
    lock.unlock();
    auto saved = write(shared->log, order);
    lock.lock();
    shared->order.reset();
    // Calls `saved` under the lock, so that no answer comes after the destructor.
    if (!shared->stopped) shared->saved(std::move(saved));
  }
  shared->over = true;
  shared->changed.notify_all();
}

}  // namespace starling::actors
