#include "kernels/cuda/cublas_lt_library.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda/folder.h"
#include "tests/scoped_variable.h"

namespace starling::kernels::cuda {
namespace {

namespace fs = std::filesystem;

TEST_CASE(
    "cuBLASLt is looked for where it was told, beside us, in the system, in Python's packages") {
  const Folder folder;
  fs::create_directories(folder.path + "/env/lib/python3.11/site-packages");
  fs::create_directories(folder.path + "/env/lib/python3.9/site-packages");
  const ScopedVariable environment("VIRTUAL_ENV", folder.path + "/env");
  const ScopedVariable libraries("STARLING_PYTHON_LIBS", folder.path + "/a:" + folder.path + "/b");
  const std::string name = "libcublasLt.so.13";
  {
    const ScopedVariable told("STARLING_CUBLASLT", "/somewhere/lib.so");
    CHECK(cublas_lt_places() == std::vector<fs::path>{"/somewhere/lib.so"});
  }
  const ScopedVariable told("STARLING_CUBLASLT", std::nullopt);
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  std::vector<fs::path> wanted{own / name, own.parent_path() / name, name};
  for (const char* const place :
       {"/a", "/b", "/env/lib/python3.11/site-packages", "/env/lib/python3.9/site-packages"})
    for (const char* const wheel : {"/nvidia/cu13/lib/", "/nvidia/cublas/lib/"})
      wanted.push_back(folder.path + place + wheel + name);
  CHECK(cublas_lt_places() == wanted);
}

TEST_CASE("a library that is none, or lacks a function, is refused with a line") {
  const Folder folder;
  std::ofstream(folder.path + "/text.so") << "not a library";
  for (const std::string& place :
       {folder.path + "/none.so", folder.path + "/text.so", std::string("libm.so.6")}) {
    CAPTURE(place);
    const ScopedVariable told("STARLING_CUBLASLT", place);
    const auto opened = open_cublas_lt();
    REQUIRE(!opened.has_value());
    CHECK(opened.error().code() == Code::kUnavailable);
  }
}

// Only where the toolkit or a wheel is: version and functions, as neither needs a device.
TEST_CASE("the real cuBLASLt has what is used of it") {
  const ScopedVariable told("STARLING_CUBLASLT", std::nullopt);
  const auto opened = open_cublas_lt();
  if (!opened) {
    MESSAGE("not looked at: " << opened.error().text());
    return;
  }
  CHECK(opened.value()->version >= 130000);
  CHECK(opened.value()->version < 140000);
  const lt::Functions& functions = opened.value()->functions;
  CHECK(std::string(functions.status_text(lt::kNotSupported)).size() > 0);
  lt::Layout layout = nullptr;
  REQUIRE(functions.create_layout(&layout, lt::kBf16, 8, 8, 8) == lt::kSuccess);
  CHECK(functions.destroy_layout(layout) == lt::kSuccess);
}

}  // namespace
}  // namespace starling::kernels::cuda
