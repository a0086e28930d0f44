#include "tests/kernels/each_device.h"

#include "kernels/cuda/device.h"

namespace starling::kernels {

// Not those of kernels_tests, which runs beside this program.
void on_each_device(const DeviceUse& use) {
  cuda::CudaDevice device(0);
  use(device);
}

}  // namespace starling::kernels
