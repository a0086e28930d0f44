#include "core/observe/tensorboard.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/text.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling {
namespace {

std::string hex_of(const std::string& text) {
  return hex(as_bytes(std::span<const char>(text)));
}

// All records of the only file of a folder.
std::vector<std::string> records_in(const std::string& folder) {
  const auto file = std::filesystem::directory_iterator(folder)->path();
  CHECK(file.filename().string().starts_with("events.out.tfevents."));
  std::ifstream stream(file, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(stream), {}};
  std::vector<std::string> records;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t size = 0;
    std::memcpy(&size, all.data() + at, sizeof size);
    REQUIRE(size + 16 <= all.size() - at);
    records.push_back(all.substr(at + 12, size));
    CHECK(tensorboard_record(records.back()) == all.substr(at, size + 16));
    at += size + 16;
  }
  return records;
}

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

event::StepPassed step(Version version, double loss) {
  event::StepPassed passed;
  passed.record.version = version;
  passed.record.loss = loss;
  passed.rate = 0.25;
  return passed;
}

}  // namespace

// As tensorboard 2.20 writes the same bytes.
TEST_CASE("tensorboard: records have the checksums that readers ask for") {
  CHECK(hex_of(tensorboard_record("")) == "000000000000000029039807d8ea82a2");
  CHECK(hex_of(tensorboard_record("123456789")) ==
        "090000000000000037f97139313233343536373839e5b08ac7");
}

TEST_CASE("tensorboard: each step once, and what is computed again is forgotten first") {
  const DataFolder folder;
  {
    auto sink = TensorboardSink::make(Job(), folder.path() + "/a/b", /*begins=*/true).value();
    sink->on(step(4, 2.5));
    sink->on(step(5, 2.5));
    sink->on(step(4, 2.5));  // another leader tells it, too
    sink->on(event::Evaluated{.version = 6, .loss = 1.5});
    sink->on(event::Restarted{.version = 5});
    sink->on(step(5, 2.5));
  }
  const auto records = records_in(folder.path() + "/a/b");
  REQUIRE(records.size() == 7);
  CHECK(records[0].ends_with("brain.Event:2"));
  // Of an event: 0x10 is its step; 0x3a a SessionLog, whose status is START; 0x2a a Summary.
  for (const auto& [record, at] : {std::pair{1, 4}, {5, 5}})
    CHECK(hex_of(records[static_cast<std::size_t>(record)])
              .ends_with("100" + std::to_string(at) + "3a020801"));
  std::string all;
  for (const std::string& record : records) all += record;
  for (const char* const name : {"loss", "norm", "rate", "workers"})
    CHECK(times(all, std::string(1, static_cast<char>(std::strlen(name))) + name) == 3);
  CHECK(times(all, "validation.loss") == 1);
  CHECK(times(all, "validation.perplexity") == 1);
}

TEST_CASE("tensorboard: a folder that cannot be made is an error") {
  CHECK_FALSE(TensorboardSink::make(Job(), "/proc/none", true));
  const DataFolder folder;
  CHECK(TensorboardSink::make(Job(), folder.path(), true));
  CHECK(has(TensorboardSink::make(Job(), folder.path(), true).error().text(),
            "has curves of another run"));
  CHECK(TensorboardSink::make(Job(), folder.path(), /*begins=*/false));
}

}  // namespace starling
