#include "core/base/named_path.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/core/data_folder.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// Goal: a name means to us the file that it means to the system, which follows links before it goes up.
TEST_CASE("a path behind a symbolic link goes up from where the link leads to") {
  const DataFolder place;
  const fs::path root = fs::canonical(place.path());
  fs::create_directories(root / "other" / "real");
  fs::create_directory(root / "mine");
  fs::create_directory_symlink("../other/real", root / "mine" / "link");
  std::error_code error;
  CHECK(named_path(root / "mine/link/../job.toml", error) == root / "other/job.toml");
  CHECK(named_path(root / "mine/./link/job.toml", error) == root / "mine/link/job.toml");
  CHECK(named_path(root / "nothing/../job.toml", error) == root / "job.toml");
  CHECK(!error);
}

}  // namespace
}  // namespace starling
