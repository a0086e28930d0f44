#pragma once
// Stuck handles a worker whose device transport hangs (collectives::NcclOptions::on_stuck).
//
// The worker trains on: its bytes go through the hosts, and the hanging threads stay as they are.
// But a library that hangs may hold up the device as well. A device that does no work holds up
// the worker's threads, and with it the group; that worker's process has to end. All members of
// that epoch may be in this state, and together they may hold the last copies of the state. So
// one goes at a time, in the order of their ranks there: each looks again when its turn has come,
// and between two turns the group has made new copies of what it lost with the one before. No
// worker asks for its turn: coordinators would have to wait for messages of the hanging threads.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "kernels/device/device.h"

namespace starling::actors {

struct StuckTimes {
  std::chrono::milliseconds answer{5'000};  // limit of a device for one small work
  std::chrono::milliseconds turn{60'000};   // of one rank
};

// DeviceProbe does some work on a device, to see whether it does any. It takes what it needs
// when it is made, as a device that is held up may give nothing. Threads: any, one at a time.
class DeviceProbe {
 public:
  explicit DeviceProbe(std::shared_ptr<kernels::Device> device);
  // False: the device did not answer in this time; a thread of its own waits on for it.
  bool answers(std::chrono::milliseconds time);

 private:
  struct Work;
  std::shared_ptr<Work> work_;
};

class Stuck {
 public:
  // `lost` must end the process. `told`: one line for people.
  Stuck(std::function<void(const std::string& why)> lost,
        std::function<void(const std::string& line)> told, StuckTimes times = {})
      : lost_(std::move(lost)), told_(std::move(told)), times_(times) {}

  // Must be called before any transport is made.
  void watch(std::shared_ptr<kernels::Device> device);
  // Blocks until the device answers, or the process has ended. `self`: this
  // worker's rank in the epoch of the transport. Threads: any, several at once.
  void on_stuck(const std::string& why, Rank self);

 private:
  bool answers();

  const std::function<void(const std::string& why)> lost_;
  const std::function<void(const std::string& line)> told_;
  const StuckTimes times_;
  Mutex mutex_;  // held while the device is asked
  std::unique_ptr<DeviceProbe> probe_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling::actors
