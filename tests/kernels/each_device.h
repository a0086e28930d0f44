#pragma once
// Cases that run on every device of a test program. Each begins with a device of its own:
//   DEVICE_CASE("..") { .. Totals totals(layout, M, device);
// The cases are in devices/, compiled once for all programs; each program says which devices it has.

#include <doctest/doctest.h>

#include <functional>

#include "kernels/device/device.h"

namespace starling::kernels {

using DeviceUse = std::function<void(Device&)>;

// Calls `use` with each device of this program, one after the other. kernels_tests: the host's memory, and memory
// that the host cannot read (each_device.cpp). Programs of the plugin: its own device (../cuda/each_device.cpp).
void on_each_device(const DeviceUse& use);

}  // namespace starling::kernels

#define DEVICE_CASE(name) DEVICE_CASE_OF(DOCTEST_ANONYMOUS(device_case_), name)
#define DEVICE_CASE_OF(f, name)  \
  static void f(Device& device); \
  TEST_CASE(name) {              \
    on_each_device(f);           \
  }                              \
  static void f([[maybe_unused]] Device& device)
