#include "core/base/machine.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <thread>

namespace starling {
namespace {

TEST_CASE("machine: what the kernel says of this one is there, and in order") {
  const Machine here = machine_here(".");
  CHECK(here.processors >= 1);
  CHECK(here.processors <= std::thread::hardware_concurrency());
  CHECK(here.memory > 100u << 20);
  CHECK(here.memory_free > 0);
  CHECK(here.memory_free <= here.memory);
  CHECK(here.disk_free > 0);
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  CHECK(here.open_files == files.rlim_cur);
  CHECK(here.first_gradient_ns == 0);
  CHECK(here.device.empty());
}

TEST_CASE("machine: a folder that is not there leaves its room open, and no name is this folder") {
  CHECK(machine_here("/no/such/folder").disk_free == 0);
  CHECK(machine_here("").disk_free > 0);
}

TEST_CASE("machine: memory is said in units that people read") {
  CHECK(memory_text(0) == "0 KiB");
  CHECK(memory_text(1) == "1 KiB");
  CHECK(memory_text(10u << 20) == "10 MiB");
  CHECK(memory_text(std::uint64_t{3} << 29) == "1.5 GiB");
}

}  // namespace
}  // namespace starling
