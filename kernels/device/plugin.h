#pragma once
// The device of a GPU lies in a library that is opened when a job asks for it: the command
// needs no part of CUDA to start, and one binary serves machines with and without a GPU.

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "kernels/device/device.h"

namespace starling::kernels {

inline constexpr const char* kCuda = "cuda";  // as a job's `isa`

// The library gives a Plugin. Both sides are of one build: classes pass between them.
struct Plugin {
  std::uint64_t interface;  // plugin_interface() as the library has it
  std::string (*build)();   // build_text() likewise
  std::string (*facts)();   // what was built and found, in one line for people; any thread
  // Checks that open() has a device to open; needs no GPU memory. Errors: as open().
  Result<> (*check)();
  // Call it once in a process. Errors: kBadInput  no GPU, or one without what the library needs.
  Result<std::shared_ptr<Device>> (*open)(const DeviceChoice& choice);
};
inline constexpr const char* kPluginEntry = "starling_plugin";  // const Plugin* (), extern "C"

// The value changes with the headers that describe what passes between command and library, and
// with the sizes of all that does.
std::uint64_t plugin_interface();

// Opens the library: STARLING_PLUGIN's value if that is set; else
// lib/starling/libstarling_cuda.so beside the folder of the running program, where it
// was installed; else where the build leaves it. It is never closed. Threads: any.
// Errors: kBadInput  not found, not to be opened, or of another build.
Result<const Plugin*> open_plugin_library();
// Checks that it has a device. Errors: as of open_plugin_library() and Plugin::check().
Result<> check_plugin();
// Opens its device. Errors: as of both.
Result<std::shared_ptr<Device>> open_plugin(const DeviceChoice& choice);

}  // namespace starling::kernels
