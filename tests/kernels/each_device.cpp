#include "tests/kernels/each_device.h"

namespace starling::kernels {

void on_each_device(const DeviceUse& use) {
  on_plain_devices(use);
}

}  // namespace starling::kernels
