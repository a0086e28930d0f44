#pragma once
// A folder for a test's files.

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace starling::kernels::cuda {

// A folder that goes with its scope.
class Folder {
 public:
  Folder() : path((std::filesystem::temp_directory_path() / "starling-XXXXXX").string()) {
    REQUIRE(mkdtemp(path.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path;
};

}  // namespace starling::kernels::cuda
