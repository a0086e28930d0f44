#include "actors/worker/stuck.h"

#include <cstdint>
#include <thread>
#include <utility>

#include "core/base/thread_name.h"
#include "kernels/device/array.h"

namespace starling::actors {

using std::chrono::milliseconds;

struct DeviceProbe::Work {
  explicit Work(std::shared_ptr<kernels::Device> d)
      : device(std::move(d)), queue(device->make_queue()), words(*device, kWords) {}

  void run() {
    device->enter_thread();
    // Uses a kernel, not a copy: that would be another part of the device.
    queue->sum({.sums = words.data(), .a = words.data(), .b = words.data(), .elements = kWords});
    queue->wait();
    const MutexLock lock(mutex);
    busy = false;
    changed.notify_all();
  }

  static constexpr std::uint64_t kWords = 256;
  const std::shared_ptr<kernels::Device> device;
  const std::unique_ptr<kernels::Queue> queue;
  kernels::Array<std::int32_t> words;

  Mutex mutex;
  CondVar changed;
  bool busy STARLING_GUARDED_BY(mutex) = false;  // the work that was begun last is not done
};

DeviceProbe::DeviceProbe(std::shared_ptr<kernels::Device> device)
    : work_(std::make_shared<Work>(std::move(device))) {}

bool DeviceProbe::answers(milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  const MutexLock lock(work_->mutex);
  if (!std::exchange(work_->busy, true))
    std::thread([work = work_] {
      name_thread("device-probe");
      work->run();
    }).detach();
  while (work_->busy && work_->changed.wait_until(work_->mutex, until)) continue;
  return !work_->busy;
}

void Stuck::watch(std::shared_ptr<kernels::Device> device) {
  const MutexLock lock(mutex_);
  probe_ = std::make_unique<DeviceProbe>(std::move(device));
}

bool Stuck::answers() {
  const MutexLock lock(mutex_);
  return !probe_ || probe_->answers(times_.answer);
}

void Stuck::on_stuck(const std::string& why, Rank self) {
  if (answers()) return told_(why);
  const auto turn = std::chrono::steady_clock::now() + self.value() * times_.turn;
  told_(why + ", and its device does not answer");
  while (!answers())
    if (std::chrono::steady_clock::now() >= turn)
      return lost_(why + "; its device does not answer");
  told_("the device answers again");
}

}  // namespace starling::actors
