#include "core/data/window_keeper.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/thread_name.h"

namespace starling {

using std::chrono::steady_clock;

WindowKeeper::WindowKeeper(std::unique_ptr<ChunkStore> store, Lanes lanes, std::uint64_t end)
    : store_(std::move(store)), lanes_(lanes), end_(end) {}

WindowKeeper::~WindowKeeper() {
  store_->stop();
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  wanted_.notify_all();
  threads_.clear();
}

void WindowKeeper::expect(std::uint64_t step, std::uint32_t lane, std::uint64_t position,
                          std::uint32_t count) {
  STARLING_CHECK(count >= 1);
  const std::uint32_t samples = lanes_.samples_of_chunk();
  const std::uint64_t behind = position + count;
  const MutexLock lock(mutex_);
  forget(step);
  LaneWindow window = lanes_.window_of(lane, position / samples);
  for (;; window = lanes_.window_of(lane, window.behind)) {
    if (Window& held = hold(step, lane, window, window.chunks()); held.first + 1 < step)
      queue(held);
    if (window.behind * samples >= behind) break;
  }
  // The next window is loaded while the second half of this one is read: all of it is there at its end.
  const std::uint64_t all = window.chunks() * samples, read = behind - window.first * samples;
  if (2 * read > all && window.behind * samples < end_) {
    const LaneWindow next = lanes_.window_of(lane, window.behind);
    queue(hold(step, lane, next, (2 * read - all) * next.chunks() / all));
  }
  // What this step reads is loaded at once, before all that is for later.
  for (std::uint64_t p = position; p < behind; ++p) {
    const auto slot = slot_of(lanes_.place_of(lane, p).chunk);
    const MutexLock of_slot(slot->mutex);
    if (!slot->bytes && !slot->loading) queue_.push_front(slot);
  }
  if (threads_.empty())
    for (unsigned i = 0; i < kThreads; ++i) threads_.emplace_back([this] { run(); });
  wanted_.notify_all();
}

WindowKeeper::Window& WindowKeeper::hold(std::uint64_t step, std::uint32_t lane,
                                         const LaneWindow& of, std::uint64_t chunks) {
  const auto [it, is_new] = windows_.try_emplace({lane, of.first});
  Window& held = it->second;
  if (is_new) held.first = step;
  held.last = std::max(held.last, step);
  while (held.slots.size() < chunks)
    held.slots.push_back(slot_of(lanes_.chunk_of(lane, of.first + held.slots.size())));
  return held;
}

void WindowKeeper::queue(Window& window) {
  for (; window.queued < window.slots.size(); ++window.queued)
    queue_.push_back(window.slots[window.queued]);
}

void WindowKeeper::forget(std::uint64_t step) {
  std::erase_if(windows_, [&](const auto& entry) { return entry.second.last + 2 < step; });
  std::erase_if(slots_, [](const auto& entry) { return entry.second.expired(); });
}

std::shared_ptr<WindowKeeper::Slot> WindowKeeper::slot_of(std::uint64_t chunk) {
  std::weak_ptr<Slot>& there = slots_[chunk];
  auto slot = there.lock();
  if (!slot) {
    slot = std::make_shared<Slot>(chunk);
    there = slot;
  }
  return slot;
}

Result<SharedBytes> WindowKeeper::get(std::uint64_t chunk) {
  std::shared_ptr<Slot> slot;
  std::multiset<steady_clock::time_point>::iterator mine;
  {
    const MutexLock lock(mutex_);
    slot = slot_of(chunk);
    // Only the caller has it, and this is not to be its end: the next sample may be of the same chunk.
    if (slot.use_count() == 1) last_ = slot;
    mine = since_.insert(steady_clock::now());
  }
  auto bytes = load(*slot);
  const MutexLock lock(mutex_);
  since_.erase(mine);
  return bytes;
}

bool WindowKeeper::waits() {
  const auto now = steady_clock::now();
  const MutexLock lock(mutex_);
  return std::ranges::any_of(since_, [&](const auto& since) {
    return now - since > std::chrono::seconds(1) && now - since < ChunkStore::kPatience;
  });
}

Result<SharedBytes> WindowKeeper::load(Slot& slot) {
  {
    const MutexLock lock(slot.mutex);
    while (slot.loading) slot.changed.wait(slot.mutex);
    if (slot.bytes) return slot.bytes;
    slot.loading = true;
  }
  auto read = store_->read(slot.chunk);
  SharedBytes bytes = read ? share(std::move(read).value()) : nullptr;
  {
    const MutexLock lock(slot.mutex);
    slot.loading = false;
    slot.bytes = bytes;
  }
  slot.changed.notify_all();
  if (!bytes) return std::move(read).error();
  return bytes;
}

void WindowKeeper::run() {
  name_thread("data");
  for (;;) {
    std::shared_ptr<Slot> slot;
    {
      const MutexLock lock(mutex_);
      while (!ending_ && queue_.empty()) wanted_.wait(mutex_);
      if (ending_) return;
      slot = queue_.front().lock();
      queue_.pop_front();
    }
    // What cannot be read is asked for again by its reader, which has the error then.
    if (slot) (void)load(*slot);
  }
}

}  // namespace starling
