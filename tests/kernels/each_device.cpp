#include "tests/kernels/each_device.h"

#include "kernels/device/emulated.h"

namespace starling::kernels {

void on_each_device(const DeviceUse& use) {
  {
    INFO("on the host");
    use(host_device());
  }
  INFO("on the emulated device");
  EmulatedDevice device;
  use(device);
}

}  // namespace starling::kernels
