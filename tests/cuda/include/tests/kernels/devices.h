#pragma once
// The devices on which tests of the grid run, with the plugin's (tests/kernels/devices.h).

#include <memory>

#include "kernels/cuda/device.h"
#include "tests/kernels/plain_devices.h"

namespace starling::kernels {

struct OnCuda {
  std::unique_ptr<cuda::CudaDevice> own = std::make_unique<cuda::CudaDevice>(0);
  Device& device = *own;
};

}  // namespace starling::kernels

TYPE_TO_STRING_AS("cuda", starling::kernels::OnCuda);

#define STARLING_DEVICES OnHost, OnEmulated, OnCuda
