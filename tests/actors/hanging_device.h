#pragma once
// A device whose queues do nothing, and whose work does not end while it hangs.

#include <condition_variable>
#include <memory>
#include <mutex>

#include "kernels/device/emulated.h"

namespace starling::actors {

// Threads: any.
class HangingDevice : public kernels::EmulatedDevice {
 public:
  void hang() { set(true); }
  void go_on() { set(false); }
  std::unique_ptr<kernels::Queue> make_queue() override { return std::make_unique<Queue>(*this); }

 private:
  class Queue : public kernels::Queue {
   public:
    explicit Queue(HangingDevice& device) : device_(device) {}
    void zero(void*, std::size_t) override {}
    void copy_in(void*, ByteView) override {}
    void copy_out(std::span<std::uint8_t>, const void*) override {}
    void copy(void*, const void*, std::size_t) override {}
    void add(const kernels::AddJob&) override {}
    void gather(const kernels::GatherJob&) override {}
    void weigh(const kernels::WeighJob&) override {}
    void sum(const kernels::SumJob&) override {}
    void wide_means(const kernels::WideJob&) override {}
    void squares(const kernels::SquaresJob&) override {}
    void apply(const kernels::ApplyJob&) override {}
    void publish(const kernels::PublishJob&) override {}
    void multiple(const kernels::MultipleJob&) override {}
    void difference(const kernels::DifferenceJob&) override {}
    void norm(const kernels::NormJob&) override {}
    void local_step(const kernels::LocalStepJob&) override {}
    void checksum(const kernels::ChecksumJob&) override {}
    void digest(const kernels::DigestJob&) override {}
    void wait() override {
      std::unique_lock lock(device_.mutex_);
      device_.changed_.wait(lock, [this] { return !device_.hangs_; });
    }

   private:
    HangingDevice& device_;
  };

  void set(bool hangs) {
    const std::lock_guard lock(mutex_);
    hangs_ = hangs;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ = false;
};

}  // namespace starling::actors
