#include "core/base/environment.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string>

#include "core/base/programs.h"
#include "tests/core/data_folder.h"
#include "tests/scoped_variable.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

TEST_CASE("environment: a variable that is set to nothing counts as not set") {
  const Environment some{{EnvVar::kNccl, ""}, {EnvVar::kPython, "/env/bin/python"}};
  CHECK(some.value(EnvVar::kPython) == "/env/bin/python");
  CHECK_FALSE(some.is_set(EnvVar::kNccl));
  CHECK(some.is_set(EnvVar::kPython));
  CHECK_FALSE(some.is_set(EnvVar::kHome));
  CHECK(some.value(EnvVar::kHome).empty());
  CHECK(std::string(name_of(EnvVar::kNoColor)) == "NO_COLOR");
}

TEST_CASE("environment: setenv() after the first call changes nothing for readers") {
  const ScopedVariable first("STARLING_SEATS", "1=a");
  const Environment& here = environment();
  ::setenv("STARLING_SEATS", "2=b", 1);
  CHECK(here.value(EnvVar::kSeats) == "1=a");
  CHECK(Environment::of_process().value(EnvVar::kSeats) == "2=b");
  {
    const ScopedVariable inner("STARLING_SEATS", std::nullopt);
    CHECK_FALSE(environment().is_set(EnvVar::kSeats));
  }
  CHECK(environment().value(EnvVar::kSeats) == "1=a");
}

TEST_CASE("programs: the first file of PATH that may be run, then those of other folders") {
  const DataFolder place;
  const auto run = [&](const std::string& name) {
    const std::string file = place.write(name, "");
    fs::permissions(file, fs::perms::owner_all);
    return file;
  };
  place.write("a/tool", "");  // may not be run
  fs::create_directories(place.path() + "/a/folder");
  const std::string tool = run("b/tool"), folder = run("b/folder"), other = run("c/other");
  const ScopedVariable path("PATH", place.path() + "/a:" + place.path() + "/b");
  CHECK(find_program("tool") == tool);
  CHECK(find_program("folder") == folder);
  CHECK(find_program("other").empty());
  CHECK(find_program("other", place.path() + "/c") == other);
  {
    const ScopedVariable empty("PATH", ":" + place.path() + "/b:");
    const fs::path before = fs::current_path();
    fs::current_path(place.path() + "/c");
    CHECK(find_program("other").empty());
    fs::current_path(before);
  }
  const ScopedVariable none("PATH", std::nullopt);
  CHECK(find_program("tool").empty());
  CHECK(find_program("other", place.path() + "/c") == other);
}

}  // namespace
}  // namespace starling
