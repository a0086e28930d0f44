#pragma once
// The chunks that lanes read from now and soon, in memory.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/data/chunk_store.h"
#include "core/data/lanes.h"

namespace starling {

// Keeps the window of each lane that is asked for, and what is loaded ahead of the next; a lane that is not asked for in
// two steps is another worker's now, and is forgotten. So a worker of k lanes keeps k windows, and at their ends twice as
// many. Chunks are loaded by threads of its own once a lane is asked for in a third step (a worker begins with a lane that
// may not be its own, and a step after a change may be dealt otherwise than was expected), and by a caller that does not
// find its chunk yet.
// Threads: any.
class WindowKeeper {
 public:
  // `end`: the position behind the last that a lane comes to, beyond which nothing is loaded ahead.
  WindowKeeper(std::unique_ptr<ChunkStore> store, Lanes lanes, std::uint64_t end);
  ~WindowKeeper();  // waits for what is asked of the store at that moment
  WindowKeeper(const WindowKeeper&) = delete;
  WindowKeeper& operator=(const WindowKeeper&) = delete;

  ChunkStore& store() { return *store_; }
  const Lanes& lanes() const { return lanes_; }

  // In this step `lane` reads `count` samples from this position on, count >= 1. Blocks for nothing.
  void expect(std::uint64_t step, std::uint32_t lane, std::uint64_t position, std::uint32_t count);
  // The bytes of a chunk. Blocks until they are here. Errors: those of ChunkStore::read().
  Result<SharedBytes> get(std::uint64_t chunk);
  // Whether a caller of get() has waited for a second, and for no longer than a store is waited for.
  bool waits();

 private:
  struct Slot {
    explicit Slot(std::uint64_t of) : chunk(of) {}
    const std::uint64_t chunk;
    Mutex mutex;
    CondVar changed;
    bool loading STARLING_GUARDED_BY(mutex) = false;
    SharedBytes bytes STARLING_GUARDED_BY(mutex);
  };
  struct Window {
    std::uint64_t first = 0, last = 0;  // steps that asked for it
    std::size_t queued = 0;             // slots that were
    std::vector<std::shared_ptr<Slot>> slots;
  };

  Window& hold(std::uint64_t step, std::uint32_t lane, const LaneWindow& of, std::uint64_t chunks)
      STARLING_REQUIRES(mutex_);
  void queue(Window& window) STARLING_REQUIRES(mutex_);
  void forget(std::uint64_t step) STARLING_REQUIRES(mutex_);
  std::shared_ptr<Slot> slot_of(std::uint64_t chunk) STARLING_REQUIRES(mutex_);

  Result<SharedBytes> load(Slot& slot);
  void run();

  static constexpr unsigned kThreads = 4;

  const std::unique_ptr<ChunkStore> store_;
  const Lanes lanes_;
  const std::uint64_t end_;
  Mutex mutex_;
  CondVar wanted_;
  // By lane and first chunk.
  std::map<std::pair<std::uint32_t, std::uint64_t>, Window> windows_ STARLING_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::weak_ptr<Slot>> slots_ STARLING_GUARDED_BY(mutex_);  // by chunk
  std::deque<std::weak_ptr<Slot>> queue_ STARLING_GUARDED_BY(mutex_);
  std::shared_ptr<Slot> last_ STARLING_GUARDED_BY(mutex_);  // the last one that is of no window
  bool ending_ STARLING_GUARDED_BY(mutex_) = false;
  // Of those who wait in get().
  std::multiset<std::chrono::steady_clock::time_point> since_ STARLING_GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling
