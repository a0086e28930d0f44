#include "kernels/device/plugin.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/build.h"
#include "core/base/environment.h"
#include "core/base/hash.h"
#include "kernels/models/gradient_maker.h"

namespace starling::kernels {
namespace {

constexpr const char* kFile = "libstarling_cuda.so";

// Lists where the library is looked for, best first.
std::vector<std::string> places() {
  if (const std::string& named = environment().value(EnvVar::kPlugin); !named.empty())
    return {named};
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return {program / ".." / "lib" / "starling" / kFile, program / "kernels" / "cuda" / kFile,
          program / ".." / "kernels" / "cuda" / kFile};
}

Error none(std::string why) {
  return Error(Code::kBadInput, std::move(why));
}

Error no_gpu(const Error& why) {
  return none("isa is \"cuda\", but " + why.text() + "; [job].isa");
}

Result<const Plugin*> open_library() {
  std::string looked;
  for (const std::string& place : places()) {
    struct stat found {};
    if (::stat(place.c_str(), &found) != 0) {
      looked += (looked.empty() ? "" : ", ") + place;
      continue;
    }
    void* const library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return none(std::string("the GPU plugin cannot be opened: ") + ::dlerror());
    const auto entry = reinterpret_cast<const Plugin* (*)()>(::dlsym(library, kPluginEntry));
    if (entry == nullptr) return none(place + " is no GPU plugin of Starling");
    const Plugin* const plugin = entry();
    if (plugin->interface != plugin_interface())
      return none(place + " is of another build: " + plugin->build() + "; this is " + build_text());
    return plugin;
  }
  return none("this build has no GPU plugin (looked for " + looked + ")");
}

}  // namespace

std::uint64_t plugin_interface() {
  constexpr std::array<std::uint64_t, 24> kSizes{
      STARLING_PLUGIN_HEADERS, sizeof(Plugin),           sizeof(Device),      sizeof(Queue),
      sizeof(Memory),          sizeof(GradientMaker),    sizeof(MakerSpec),   sizeof(PassHooks),
      sizeof(ModelSpec),       sizeof(Layout),           sizeof(TensorPlace), sizeof(Part),
      sizeof(Batch),           sizeof(MicroBatchResult), sizeof(AddJob),      sizeof(GatherJob),
      sizeof(WeighJob),        sizeof(SumJob),           sizeof(WideJob),     sizeof(SquaresJob),
      sizeof(ApplyJob),        sizeof(PublishJob),       sizeof(ChecksumJob), sizeof(DigestJob)};
  std::uint64_t hash = 0;
  for (const std::uint64_t size : kSizes) hash = mix64(hash, size);
  for (const char c : build_text()) hash = mix64(hash, static_cast<std::uint64_t>(c));
  return hash;
}

Result<const Plugin*> open_plugin_library() {
  static const Result<const Plugin*> opened = open_library();
  if (opened) return opened.value();
  return Error(opened.error().code(), opened.error().text());
}

Result<> check_plugin() {
  const auto plugin = open_plugin_library();
  if (!plugin) return no_gpu(plugin.error());
  if (const auto there = plugin.value()->check(); !there) return no_gpu(there.error());
  return ok();
}

Result<std::shared_ptr<Device>> open_plugin(const DeviceChoice& choice) {
  const auto plugin = open_plugin_library();
  if (!plugin) return no_gpu(plugin.error());
  auto device = plugin.value()->open(choice);
  if (!device) return no_gpu(device.error());
  return device;
}

}  // namespace starling::kernels
