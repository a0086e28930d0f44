#pragma once
// A Gpu is a device that has models of its own.

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/frozen.h"

namespace starling::kernels::cuda {

// Threads: as Device.
class Gpu : public CudaDevice {
 public:
  // Errors: kBadInput  there is no GPU that the kernels were built for.
  static Result<std::shared_ptr<Device>> open(const DeviceChoice& choice);

  const std::string& name() const override { return name_; }
  bool has_arithmetic() const override { return true; }
  // Computes GPT, Llama and MLP.
  std::unique_ptr<GradientMaker> make_maker(const MakerSpec& spec) override;
  // Tunes its products, where cuBLASLt is.
  Result<> tune(const MakerSpec& spec, const std::string& file) override;

 private:
  Gpu(int index, bool exports);

  // Returns the model's frozen tensors in this device's memory, which its makers share; null: none, or no values.
  std::shared_ptr<const DeviceFrozen> frozen_of(const MakerSpec& spec);

  std::string name_;  // the device, and the library of its products
  Mutex mutex_;
  // The last, also for makers to come.
  std::shared_ptr<const DeviceFrozen> frozen_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling::kernels::cuda
