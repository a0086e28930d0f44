#include "kernels/cuda/cublas_lt_library.h"

#include <dlfcn.h>

#include <type_traits>
#include <utility>

#include "core/base/environment.h"
#include "core/base/libraries.h"

namespace starling::kernels::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libcublasLt.so.13";
constexpr std::size_t kMajor = 13;  // what lt:: describes

// Returns the folder of the file that this code was loaded from.
fs::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&open_cublas_lt), &info) == 0 || !info.dli_fname)
    return {};
  std::error_code ignored;
  return fs::absolute(info.dli_fname, ignored).parent_path();
}

// Returns the name of a function that is missing; empty if there is none.
std::string find_all(void* library, lt::Functions& f) {
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) missing = name;
    return function != nullptr;
  };
  const bool found = find("cublasLtCreate", f.create) && find("cublasLtDestroy", f.destroy) &&
                     find("cublasLtGetVersion", f.version) &&
                     find("cublasLtGetStatusString", f.status_text) &&
                     find("cublasLtMatmulDescCreate", f.create_description) &&
                     find("cublasLtMatmulDescDestroy", f.destroy_description) &&
                     find("cublasLtMatmulDescSetAttribute", f.set_description) &&
                     find("cublasLtMatrixLayoutCreate", f.create_layout) &&
                     find("cublasLtMatrixLayoutDestroy", f.destroy_layout) &&
                     find("cublasLtMatmulPreferenceCreate", f.create_preference) &&
                     find("cublasLtMatmulPreferenceDestroy", f.destroy_preference) &&
                     find("cublasLtMatmulPreferenceSetAttribute", f.set_preference) &&
                     find("cublasLtMatmulAlgoGetHeuristic", f.candidates) &&
                     find("cublasLtMatmulAlgoCheck", f.check) &&
                     find("cublasLtMatmulAlgoConfigGetAttribute", f.attribute) &&
                     find("cublasLtMatmul", f.multiply);
  return found ? std::string() : missing;
}

Result<std::shared_ptr<const CublasLtLibrary>> open_at(const fs::path& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return Error(Code::kUnavailable, std::string("cannot be opened: ") + dlerror());
  auto opened = std::make_shared<CublasLtLibrary>();
  opened->path = path;
  if (const std::string missing = find_all(library, opened->functions); !missing.empty())
    return Error(Code::kUnavailable, path.string() + " has no function " + missing);
  opened->version = opened->functions.version();
  if (opened->version / 10000 != kMajor)
    return Error(Code::kUnavailable, path.string() + " has version " +
                                         std::to_string(opened->version) + ", wanted is " +
                                         std::to_string(kMajor) + "xxxx");
  return std::shared_ptr<const CublasLtLibrary>(std::move(opened));
}

}  // namespace

std::vector<fs::path> cublas_lt_places() {
  if (const std::string& told = environment().value(EnvVar::kCublasLt); !told.empty())
    return {told};
  std::vector<fs::path> places;
  if (const fs::path own = own_folder(); !own.empty()) {
    places.push_back(own / kName);
    places.push_back(own.parent_path() / kName);
  }
  places.emplace_back(kName);
  for (const fs::path& folder : python_folders())
    for (const char* const wheel : {"nvidia/cu13/lib", "nvidia/cublas/lib"})
      places.push_back(folder / wheel / kName);
  return places;
}

Result<std::shared_ptr<const CublasLtLibrary>> open_cublas_lt() {
  std::string tried;
  for (const fs::path& place : cublas_lt_places()) {
    std::error_code ignored;
    // The loader looks up a bare name.
    if (place.has_parent_path() && !fs::exists(place, ignored)) {
      tried += (tried.empty() ? "" : ", ") + place.string();
      continue;
    }
    auto opened = open_at(place);
    if (opened || place.has_parent_path()) return opened;
    tried += (tried.empty() ? "" : ", ") + place.string();
  }
  return Error(Code::kUnavailable, "cuBLASLt is at none of: " + tried);
}

}  // namespace starling::kernels::cuda
