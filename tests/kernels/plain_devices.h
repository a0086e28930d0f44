#pragma once
// The devices that need no hardware.

#include <doctest/doctest.h>

#include <memory>

#include "kernels/device/device.h"
#include "kernels/device/emulated.h"

namespace starling::kernels {

struct OnHost {
  Device& device = host_device();
};
struct OnEmulated {
  std::unique_ptr<EmulatedDevice> own = std::make_unique<EmulatedDevice>();
  Device& device = *own;
};

}  // namespace starling::kernels

TYPE_TO_STRING_AS("host", starling::kernels::OnHost);
TYPE_TO_STRING_AS("emulated", starling::kernels::OnEmulated);
