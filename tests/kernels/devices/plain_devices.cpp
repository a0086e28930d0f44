#include "kernels/device/emulated.h"
#include "tests/kernels/each_device.h"

namespace starling::kernels {

void on_plain_devices(const DeviceUse& use) {
  {
    INFO("on the host");
    use(host_device());
  }
  INFO("on the emulated device");
  EmulatedDevice device;
  use(device);
}

}  // namespace starling::kernels
