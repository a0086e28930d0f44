#include "tests/kernels/each_device.h"

#include "kernels/cuda/device.h"

namespace starling::kernels {

void on_each_device(const DeviceUse& use) {
  on_plain_devices(use);
  INFO("on the plugin's device");
  cuda::CudaDevice device(0);
  use(device);
}

}  // namespace starling::kernels
