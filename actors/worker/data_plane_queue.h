#pragma once
// DataPlaneQueue holds orders and frames for the data plane's thread. For data_plane.cpp.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include "actors/worker/data_plane.h"
#include "actors/worker/epoch_io.h"
#include "core/base/mutex.h"

namespace starling::actors {

// Threads: next() and done() are the data plane's; the rest any.
class DataPlaneQueue {
 public:
  using Work = std::variant<DataPlaneOrder, MeshEvent, TransportReport>;

  // Bounds the bytes of frames that the data plane has not looked at. Beyond it peers wait,
  // as memory is worth more than their time. The protocol bounds the frames after that.
  static constexpr std::size_t kUnreadMax = 8u << 20;

  void post(Work work) {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    unread_ += bytes_of(work);
    queue_.push_back(std::move(work));
    ++waiting_;
    changed_.notify_one();
  }
  // Waits for work. Nothing: stop() was called. The caller calls done() after the work.
  std::optional<Work> next() {
    const MutexLock lock(mutex_);
    while (!stopping_ && queue_.empty()) changed_.wait(mutex_);
    if (stopping_) return std::nullopt;
    std::optional<Work> work(std::move(queue_.front()));
    queue_.pop_front();
    at_hand_ = bytes_of(*work);
    return work;
  }
  // Returns whether peers that had to wait may go on.
  bool done() {
    --waiting_;
    const std::size_t before = unread_.fetch_sub(at_hand_);
    return before >= kUnreadMax / 2 && before - at_hand_ < kUnreadMax / 2;
  }
  void stop() {
    const MutexLock lock(mutex_);
    stopping_ = true;
    queue_.clear();
    changed_.notify_one();
  }
  // Counts the work under way, too.
  std::uint32_t waiting() const { return waiting_; }
  bool may_read() const { return unread_ < kUnreadMax; }

 private:
  static std::size_t bytes_of(const Work& work) {
    const auto* e = std::get_if<MeshEvent>(&work);
    return e && e->frame.payload ? e->frame.payload->size() : 0;
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<Work> queue_ STARLING_GUARDED_BY(mutex_);
  bool stopping_ STARLING_GUARDED_BY(mutex_) = false;
  std::atomic<std::uint32_t> waiting_ = 0;
  std::atomic<std::size_t> unread_ = 0;  // of frames, with the work under way
  std::size_t at_hand_ = 0;              // of the work under way; the data plane's thread's
};

}  // namespace starling::actors
