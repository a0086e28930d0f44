// The Raft log on a real disk.

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "core/formats/raft_log.h"

namespace starling {
namespace {

constexpr JobId kFileJob{1, 2, 3, 4};

struct Directory {
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "raft_log_XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

Result<RaftLog> open_at_once(const std::string& dir) {
  return RaftLog::open(dir, kFileJob, 0, RaftLog::Life::kLater, std::chrono::milliseconds(0));
}

TEST_CASE("raft log: on a real disk it is made, locked, read back, and its torn end kept aside") {
  const Directory directory;
  const auto dir = directory.path + "/member";
  const auto name = dir + "/raft.log";
  {
    auto log = RaftLog::open(dir, kFileJob, 0, RaftLog::Life::kFirst);
    REQUIRE_MESSAGE(log, (log ? "" : log.error().text()));
    CHECK(log.value().term() == RaftTerm{});
    const std::vector<RaftEntry> entries{RaftEntry{1, 1, {}}, RaftEntry{2, 1, Bytes(300, 7)}};
    CHECK(log.value().save(RaftTerm{1, 0}, entries));
    const auto second = open_at_once(dir);  // two lives at once
    REQUIRE(!second);
    CHECK(second.error().code() == Code::kUnavailable);
  }
  // A torn record at the end: its first words only.
  std::uint64_t end = 0;
  {
    std::ifstream in(name, std::ios::binary);
    const Bytes bytes((std::istreambuf_iterator<char>(in)), {});
    const auto last = std::find_if(bytes.rbegin(), bytes.rend(), [](std::uint8_t b) { return b; });
    end = static_cast<std::uint64_t>(bytes.rend() - last + 7) / 8 * 8;
    std::fstream out(name, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(end));
    out.write("\x08\0\0\0\x02\0\0\0\x03", 9);
  }
  {
    auto log = RaftLog::open(dir, kFileJob, 0);
    REQUIRE_MESSAGE(log, (log ? "" : log.error().text()));
    CHECK(log.value().cut_bytes() == 9);
    CHECK(std::filesystem::file_size(name + ".torn") == 9);
    CHECK(log.value().term() == RaftTerm{1, 0});
    const auto entries = log.value().take_entries();
    REQUIRE(entries.size() == 2);
    CHECK(entries[1] == RaftEntry{2, 1, Bytes(300, 7)});
    CHECK(log.value().save({}, std::vector{RaftEntry{2, 1, Bytes(5, 9)}}));
  }
  auto log = RaftLog::open(dir, kFileJob, 0);
  REQUIRE(log);
  CHECK(log.value().take_entries().back() == RaftEntry{2, 1, Bytes(5, 9)});
}

TEST_CASE("raft log: on a real disk a snapshot cuts the file, and the lock goes with it") {
  const Directory directory;
  const auto dir = directory.path + "/member";
  const auto name = dir + "/raft.log";
  {
    auto log = RaftLog::open(dir, kFileJob, 0, RaftLog::Life::kFirst);
    REQUIRE(log);
    for (std::uint64_t i = 1; i <= 8; ++i)
      CHECK(log.value().save(RaftTerm{i, 0}, std::vector{RaftEntry{i, i, Bytes(200000, 7)}}));
    const auto before = std::filesystem::file_size(name);
    const RaftLogSnapshot snapshot{8, 8, std::make_shared<const Bytes>(Bytes(50, 3))};
    CHECK(log.value().save({}, {}, snapshot));
    CHECK(std::filesystem::file_size(name) < before / 4);
    const auto second = open_at_once(dir);
    REQUIRE(!second);
    CHECK(second.error().code() == Code::kUnavailable);
    CHECK(log.value().save({}, std::vector{RaftEntry{9, 8, Bytes(5, 9)}}));
  }
  auto log = RaftLog::open(dir, kFileJob, 0);
  REQUIRE_MESSAGE(log, (log ? "" : log.error().text()));
  CHECK(log.value().take_snapshot().index == 8);
  CHECK(log.value().take_entries() == std::vector{RaftEntry{9, 8, Bytes(5, 9)}});
}

// A coordinator that was killed is begun again at once, and has its log until the kernel has taken
// it down.
TEST_CASE("raft log: whoever comes while another process ends waits for its log") {
  const Directory directory;
  std::optional<RaftLog> ending =
      RaftLog::open(directory.path, kFileJob, 0, RaftLog::Life::kFirst).value();
  CHECK(ending->save(RaftTerm{3, 0}, {}));
  REQUIRE(!open_at_once(directory.path));
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ending.reset();
  });
  const auto next =
      RaftLog::open(directory.path, kFileJob, 0, RaftLog::Life::kLater, std::chrono::minutes(1));
  end.join();
  REQUIRE_MESSAGE(next, (next ? "" : next.error().text()));
  CHECK(next.value().term() == RaftTerm{3, 0});
}

// Goal: nobody goes on with a file that nobody will find again.
TEST_CASE("raft log: a file that was removed while it is open is noticed, and saves fail") {
  const Directory directory;
  auto log = RaftLog::open(directory.path, kFileJob, 0, RaftLog::Life::kFirst);
  REQUIRE(log);
  CHECK(log.value().check());
  std::filesystem::remove(directory.path + "/raft.log");
  const auto gone = log.value().check();
  REQUIRE(!gone);
  CHECK(gone.error().text().find("removed") != std::string::npos);
  CHECK(!log.value().save(RaftTerm{1, 0}, {}));
  // A second process finds an empty folder: it has lost its log, and knows it.
  auto second = RaftLog::open(directory.path, kFileJob, 0);
  REQUIRE(second);
  CHECK(second.value().term().lost);
  CHECK(!log.value().check());
}

TEST_CASE("raft log: a directory that cannot be made is an error with its name") {
  const auto log = RaftLog::open("/nonexistent/raft", kFileJob, 0);
  REQUIRE(!log);
  CHECK(log.error().code() == Code::kUnavailable);
  CHECK(log.error().text().find("/nonexistent/raft") != std::string::npos);
}

}  // namespace
}  // namespace starling
