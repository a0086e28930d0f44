// This file has the library's one entry: kernels/device/plugin.h.

#include "kernels/device/plugin.h"

#include "core/base/build.h"
#include "core/base/environment.h"
#include "kernels/cuda/facts.h"
#include "kernels/cuda/gpu.h"

namespace starling::kernels::cuda {
namespace {

Result<> check_any() {
  STARLING_TRY(usable_gpu(0));
  return ok();
}

}  // namespace
}  // namespace starling::kernels::cuda

extern "C" __attribute__((visibility("default"))) const starling::kernels::Plugin*
starling_plugin() {
  using namespace starling::kernels;
  starling::environment();  // reads it before the device has threads
  static const Plugin plugin{plugin_interface(), starling::build_text, cuda::facts, cuda::check_any,
                             cuda::Gpu::open};
  return &plugin;
}
