#include "collectives/nccl/library.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda/folder.h"
#include "tests/nccl/world.h"
#include "tests/scoped_variable.h"

namespace starling::collectives {
namespace {

namespace fs = std::filesystem;
using kernels::cuda::Folder;

TEST_CASE("NCCL is looked for where it was told, beside us, in the system, in Python's packages") {
  const ScopedVariable python("STARLING_PYTHON_LIBS", "/a:/b");
  const ScopedVariable environment("VIRTUAL_ENV", std::nullopt);
  {
    const ScopedVariable told("STARLING_NCCL", "/somewhere/lib.so");
    CHECK(nccl_places() == std::vector<fs::path>{"/somewhere/lib.so"});
  }
  const ScopedVariable told("STARLING_NCCL", std::nullopt);
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  CHECK(nccl_places() == std::vector<fs::path>{own / "lib/libnccl.so.2", "libnccl.so.2",
                                               "/a/nvidia/nccl/lib/libnccl.so.2",
                                               "/b/nvidia/nccl/lib/libnccl.so.2"});
}

TEST_CASE(
    "a library that is none, lacks a function or has another version is refused with a line") {
  const Folder folder;
  std::ofstream(folder.path + "/text.so") << "not a library";
  struct Case {
    std::string place;
    std::optional<std::string> version;
    std::string said;
  };
  const Case cases[] = {
      {folder.path + "/none.so", {}, "NCCL is at none of: " + folder.path + "/none.so"},
      {folder.path + "/text.so", {}, "NCCL cannot be opened: " + folder.path + "/text.so"},
      {"libm.so.6", {}, "NCCL is at none of: libm.so.6"},
      {STARLING_FAKE_NCCL, "22806", " is NCCL 2.28.6, wanted is at least 2.28.7 and below 3.0.0"},
      {STARLING_FAKE_NCCL, "30000", " is NCCL 3.0.0, wanted is at least 2.28.7 and below 3.0.0"},
      {STARLING_FAKE_NCCL_OLD, {}, " has no function ncclCommRevoke"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.place);
    const ScopedVariable told("STARLING_NCCL", c.place);
    const ScopedVariable version("FAKE_NCCL_VERSION", c.version);
    const auto opened = open_nccl();
    REQUIRE(!opened.has_value());
    CHECK(opened.error().code() == Code::kUnavailable);
    CHECK(opened.error().text().find(c.said) != std::string::npos);
    CHECK(opened.error().text().find('\n') == std::string::npos);
  }
}

TEST_CASE("a library's name is its version, which members compare") {
  for (const auto& [version, name] :
       {std::pair{"22807", "nccl 2.28.7"}, {"22809", "nccl 2.28.9"}, {"23203", "nccl 2.32.3"}}) {
    const ScopedVariable told("FAKE_NCCL_VERSION", version);
    CHECK(open_nccl().value()->name() == name);
  }
}

TEST_CASE("ids that would all be equal are refused") {
  const ScopedVariable equal("NCCL_COMM_ID", "127.0.0.1:1234");
  const auto opened = open_nccl();
  REQUIRE(!opened.has_value());
  CHECK(opened.error().code() == Code::kBadInput);
  CHECK(opened.error().text().find("NCCL_COMM_ID") == 0);
}

TEST_CASE("memory that does not outlive who maps it to its peers is refused") {
  for (const char* name : {"NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE"}) {
    const ScopedVariable off(name, "0");
    const auto opened = open_nccl();
    REQUIRE(!opened.has_value());
    CHECK(opened.error().code() == Code::kBadInput);
    CHECK(opened.error().text().find(std::string(name) + " is 0, ") == 0);
    CHECK(opened.error().text().find('\n') == std::string::npos);
  }
  const ScopedVariable on("NCCL_CUMEM_ENABLE", "1");
  CHECK(open_nccl().has_value());
}

TEST_CASE("what cannot be aborted is switched off, unless somebody wants it, and it is said") {
  const ScopedVariable nvls("NCCL_NVLS_ENABLE", std::nullopt);
  const ScopedVariable ras("NCCL_RAS_ENABLE", "1");
  const ScopedVariable pxn("NCCL_PXN_DISABLE", std::nullopt);
  const ScopedVariable memory("NCCL_CUMEM_ENABLE", std::nullopt);
  const ScopedVariable host("NCCL_CUMEM_HOST_ENABLE", "1");
  const auto opened = open_nccl();
  REQUIRE(opened.has_value());
  CHECK(opened.value()->settings() == "NVLS off, RAS on, PXN off, cuMem by default, cuMem host 1");
  CHECK(std::string(std::getenv("NCCL_PXN_DISABLE")) == "1");
  CHECK(std::string(std::getenv("NCCL_NVLS_ENABLE")) == "0");
  CHECK(std::string(std::getenv("NCCL_RAS_ENABLE")) == "1");
}

TEST_CASE("processes that share a GPU are hosts of their own to NCCL, over local sockets") {
  const ScopedVariable host("NCCL_HOSTID", std::nullopt);
  const ScopedVariable net("NCCL_NET", std::nullopt);
  const ScopedVariable blocks("NCCL_MAX_CTAS", "2");
  REQUIRE(open_nccl().has_value());
  CHECK(std::getenv("NCCL_HOSTID") == nullptr);
  CHECK(std::getenv("NCCL_NET") == nullptr);
  {
    const ScopedVariable shared("STARLING_NCCL_SHARED_GPU", "1");
    const ScopedVariable interface("NCCL_SOCKET_IFNAME", std::nullopt);
    const ScopedVariable infiniband("NCCL_IB_DISABLE", std::nullopt);
    const ScopedVariable peers("NCCL_P2P_DISABLE", std::nullopt);
    const ScopedVariable memory("NCCL_SHM_DISABLE", std::nullopt);
    REQUIRE(open_nccl().has_value());
    CHECK(std::string(std::getenv("NCCL_HOSTID")) == "starling-" + std::to_string(::getpid()));
    CHECK(std::string(std::getenv("NCCL_NET")) == "Socket");
    CHECK(std::string(std::getenv("NCCL_SOCKET_IFNAME")) == "lo");
    CHECK(std::string(std::getenv("NCCL_SHM_DISABLE")) == "1");
  }
  CHECK(std::string(std::getenv("NCCL_MAX_CTAS")) == "2");
}

// Only where the library is: it opens, and says its version and makes ids without a GPU. Without one,
// or with one and no peer, a transport fails with one line.
TEST_CASE("the real NCCL has what is used of it") {
  const ScopedVariable told("STARLING_NCCL", std::nullopt);
  const auto opened = open_nccl();
  if (!opened) {
    MESSAGE("not looked at: " << opened.error().text());
    return;
  }
  MESSAGE(opened.value()->name());
  const Bytes id = opened.value()->make_id().value();
  CHECK(id.size() == 128);
  CHECK(id != opened.value()->make_id().value());
  kernels::EmulatedDevice unused;
  Member member(unused, {.place = Place::kHost, .connect_ms = 5000});
  member.connect({0, 2}, id, 1000);
  const std::string event = member.next();
  MESSAGE(event);
  CHECK(event.find("failed: ") == 0);
  CHECK(event.find('\n') == std::string::npos);
}

}  // namespace
}  // namespace starling::collectives
