// Data that are read in pieces, and files that change while a job reads them.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/data/bytes_source.h"
#include "core/data/dataset.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling {

namespace fs = std::filesystem;

TEST_CASE("the content of large data sees every byte") {
  Bytes large((64u << 20) + 4096);
  CHECK(!is_known_whole(large.size()));
  CHECK(is_known_whole(64u << 20));
  const ReadAt read = [&](std::uint64_t at, std::size_t count) {
    return Result<ByteView>(ByteView(large).subspan(at, count));
  };
  const auto yes = [] { return true; };
  const auto content = [&] { return content_of(large.size(), read, yes).value(); };
  const Digest identity = identity_of(large), before = content();
  const std::size_t unseen = (1u << 20) + (65u << 10);  // between the first MiB and the next piece
  large[unseen] ^= 1;
  CHECK(identity_of(large) == identity);
  CHECK(content() != before);
  large[unseen] ^= 1;
  CHECK(content() == before);
  CHECK(content_of(large.size() - 1, read, yes) != before);
  int pieces = 0;
  CHECK(!content_of(large.size(), read, [&] { return ++pieces < 3; }).has_value());
  CHECK(pieces == 3);
}

TEST_CASE("the identity sees content and size") {
  const DataFolder folder;
  std::map<Digest, std::string> seen;
  for (const std::string content : {"abcd", "abce", "abcda", "bacd"}) {
    const auto set =
        Dataset::open(job_for(DataKind::kText, folder.write("t", content), 3, 256)).value();
    CHECK(seen.emplace(set->identity(), content).second);
  }
  // Above 64 MiB: ends and fixed pieces.
  Bytes large(65 << 20, 1);
  const Digest before = identity_of(large);
  large.front() = 2;
  CHECK(identity_of(large) != before);
  large.front() = 1, large.back() = 2;
  CHECK(identity_of(large) != before);
  large.back() = 1;
  CHECK(identity_of(large) == before);
  large[large.size() / 2] = 2;
  large.push_back(1);
  CHECK(identity_of(large) != before);
}

TEST_CASE("a mapped file that is cut while in use is an error, not a crash") {
  const DataFolder folder;
  const auto path = folder.write("t", std::string(100000, 'a'));
  const auto set = Dataset::open(job_for(DataKind::kText, path, 4, 256)).value();
  CHECK(set->micro_batch(0, 0));
  fs::resize_file(path, 10);
  const auto batch = set->micro_batch(0, 0);
  REQUIRE_FALSE(batch);
  CHECK(has(batch.error().text(), "was cut to 10 bytes while in use, had 100000"));
}

// Goal: no sample of other bytes than the job began with is computed, and no run is ended for a file
// that was only touched. Method: files that are written to after they were opened; their times are
// set back first, as a clock of files has ticks of milliseconds.
TEST_CASE("a mapped file that is written to while in use is refused, one that is touched is not") {
  const DataFolder folder;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  const auto job_of = [&](const std::string& name) {
    const auto path = folder.write(name, std::string(100000, 'a'));
    fs::last_write_time(path, old);
    return job_for(DataKind::kText, path, 4, 256);
  };
  const auto write_over = [](const Job& job, std::size_t at) {
    std::fstream file(job.data.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file << "b";
  };

  const Job touched = job_of("touched");
  const auto same = Dataset::open(touched).value();
  fs::last_write_time(touched.data.path, old + std::chrono::minutes(1));
  CHECK(same->micro_batch(0, 0));
  fs::permissions(touched.data.path, fs::perms::owner_read | fs::perms::owner_write);
  CHECK(same->micro_batch(1, 0).value().tokens.size() ==
        4 * std::size_t{touched.micro_batch_sequences});
  write_over(touched, 50000);
  CHECK_FALSE(same->micro_batch(2, 0));

  const Job written = job_of("written");
  const auto set = Dataset::open(written).value();
  const std::uint64_t wanted[] = {0};
  CHECK(set->fill(wanted));
  write_over(written, 99999);  // no byte of that sample
  const auto refused = set->fill(wanted);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::kBadInput);
  CHECK(has(refused.error().text(), "was changed while it was in use"));
  CHECK(has(refused.error().text(), written.data.path));
}

// Goal: a writer that sets the time of the bytes back is noticed where the identity is a sample.
TEST_CASE("a large file of which any time has changed is refused") {
  const DataFolder folder;
  const auto path = folder.write("large", "");
  fs::resize_file(path, (64u << 20) + 4096);
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(path, old);
  const auto set = Dataset::open(job_for(DataKind::kText, path, 4, 256)).value();
  const std::uint64_t wanted[] = {0};
  CHECK(set->fill(wanted));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp((1u << 20) + (65u << 10));  // between two pieces that the identity covers
    file << "b";
  }
  fs::last_write_time(path, old);
  CHECK_FALSE(set->fill(wanted));
}

// As a write through a mapping, or to a network file system, that the times do not show in time.
TEST_CASE("a mapped file that was written to without a trace is refused in the last step") {
  const DataFolder folder;
  Job job = job_for(DataKind::kText, folder.write("t", std::string(100000, 'a')), 4, 256);
  job.steps = 3;
  const auto set = Dataset::open(job).value();
  const int fd = ::open(job.data.path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  void* all = ::mmap(nullptr, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE(all != MAP_FAILED);
  static_cast<char*>(all)[99999] = 'b';
  const auto last = set->micro_batch(2, 0);
  ::munmap(all, 100000);
  ::close(fd);
  REQUIRE_FALSE(last);
  CHECK(has(last.error().text(), "was changed while it was in use"));
}

}  // namespace starling
