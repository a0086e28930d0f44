#include "kernels/cuda/facts.h"

#include <cuda_runtime.h>

#include <string_view>

namespace starling::kernels::cuda {
namespace {

// CMAKE_CUDA_ARCHITECTURES has this form: "80-real,90-real". Machine code alone,
// as the driver's own compiler would give other bits from one driver to the next.
constexpr std::string_view kBuiltFor = STARLING_CUDA_ARCHITECTURES;

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, index) != cudaSuccess) return 0;
  return value;
}

// Code for 8.0 runs on 8.6, not on 9.0.
bool built_for(int major, int minor) {
  for (std::string_view rest = kBuiltFor; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(word.size() == rest.size() ? rest.size() : word.size() + 1);
    int number = 0;
    for (const char c : word) {
      if (c < '0' || c > '9') break;
      number = 10 * number + (c - '0');
    }
    if (number / 10 == major && number % 10 <= minor) return true;
  }
  return false;
}

Result<int> count_gpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return Error(Code::kBadInput, std::string("this machine has no GPU that can be used: ") +
                                      cudaGetErrorString(error));
  }
  if (count == 0) return Error(Code::kBadInput, "this machine has no GPU");
  return count;
}

}  // namespace

Result<int> usable_gpu(std::uint32_t gpu) {
  STARLING_TRY(count, count_gpus());
  const int index = static_cast<int>(gpu % static_cast<std::uint32_t>(count));
  const int major = attribute(cudaDevAttrComputeCapabilityMajor, index);
  const int minor = attribute(cudaDevAttrComputeCapabilityMinor, index);
  if (!built_for(major, minor))
    return Error(Code::kBadInput, "GPU " + std::to_string(index) + " has compute capability " +
                                      std::to_string(major) + "." + std::to_string(minor) +
                                      ", the plugin is built for " + std::string(kBuiltFor));
  return index;
}

std::string facts() {
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  std::string text = "built for " + std::string(kBuiltFor) + " with CUDA " +
                     std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10);
  const auto count = count_gpus();
  if (!count) return text + "; " + count.error().text();
  text += "; " + std::to_string(count.value()) + (count.value() == 1 ? " GPU" : " GPUs");
  for (int i = 0; i < count.value(); ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    text += std::string(i == 0 ? ": " : ", ") + properties.name + " (" +
            std::to_string(properties.major) + "." + std::to_string(properties.minor) +
            (built_for(properties.major, properties.minor) ? ")" : ": no code for it)");
  }
  return text;
}

}  // namespace starling::kernels::cuda
