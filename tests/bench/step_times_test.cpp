#include "tools/bench/step_times.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace starling::bench {
namespace {

using actors::StepTimes;
constexpr std::int64_t kMs = 1'000'000;
constexpr auto kPassed = static_cast<std::size_t>(actors::StepMark::kPassed);

// Each mark one ms after the other, from `begun` on.
StepTimes times(Version version, std::int64_t begun, std::uint64_t sent = 0) {
  StepTimes t;
  t.version = version;
  t.world = 2;
  for (std::size_t k = 0; k < actors::kStepMarks; ++k) {
    t.at_ns[k] = (begun + std::int64_t(k)) * kMs;
    t.work_ns[k] = (begun + 2 * std::int64_t(k)) * kMs / 10;
  }
  t.sent_bytes = sent;
  return t;
}

struct File {
  std::string path =
      (std::filesystem::temp_directory_path() / ("starling-times-" + std::to_string(::getpid())))
          .string();
  ~File() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("times of steps read back from their file") {
  const File file;
  StepTimes second = times(8, 20, 77);
  second.computing_ns = 5;
  second.state_check_ns = 6;
  second.totals_check_ns = 7;
  const std::vector<StepTimes> all{times(7, 5), second};
  REQUIRE(save_step_times(file.path, all));
  CHECK(load_step_times(file.path).value() == all);
}

TEST_CASE("a file that is not one of step times is refused with its line") {
  const File file;
  CHECK_FALSE(load_step_times(file.path));
  REQUIRE(save_step_times(file.path, {times(7, 5)}));
  for (const char* line :
       {"", "1,2", "a", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,-26",
        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27"}) {
    CAPTURE(line);
    REQUIRE(save_step_times(file.path, {times(7, 5)}));
    std::ofstream(file.path, std::ios::app) << line << "\n";
    const auto loaded = load_step_times(file.path);
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().text().find("line 3") != std::string::npos);
  }
  std::ofstream(file.path) << "another head\n";
  CHECK_FALSE(load_step_times(file.path));
}

// The second worker is 3 ms late with its sums and waits for nobody in the vote; the first waits.
TEST_CASE("a part of a step lasts until the last worker is through with it") {
  StepTimes early = times(8, 100), late = times(8, 100);
  for (auto k = static_cast<std::size_t>(actors::StepMark::kReduced); k < actors::kStepMarks; ++k) {
    late.at_ns[k] += 3 * kMs;
    if (k >= kPassed) early.at_ns[k] += 3 * kMs;
  }
  early.computing_ns = late.computing_ns = kMs / 2;
  const auto parts = step_parts({{times(7, 80), early}, {times(7, 81), late}});
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].compute == doctest::Approx(0.5));
  CHECK(parts[0].hand_over == doctest::Approx(101 - 89 - 1 - 0.5));
  CHECK(parts[0].reduce == doctest::Approx(4));
  CHECK(parts[0].vote == doctest::Approx(1));
  CHECK(parts[0].commit == doctest::Approx(1));
  CHECK(parts[0].norm == doctest::Approx(1));
  CHECK(parts[0].apply == doctest::Approx(1));
  CHECK(parts[0].gather == doctest::Approx(0));  // all of it may have been noting checksums
  CHECK(parts[0].checksums == doctest::Approx(3));
  CHECK(parts[0].telling == doctest::Approx(1));
  // From where the last had told until it tells again.
  CHECK(parts[0].step() == doctest::Approx(100 + 8 + 3 - 89));
}

// One passes a millisecond after the last norm, the other three later: it waits for a core.
TEST_CASE("a vote lasts until all have passed, and has committed when the first has") {
  StepTimes first = times(8, 100), last = times(8, 100);
  for (std::size_t k = kPassed; k < actors::kStepMarks; ++k) last.at_ns[k] += 3 * kMs;
  const auto parts = step_parts({{times(7, 80), last}, {times(7, 80), first}});
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].vote == doctest::Approx(4));
  CHECK(parts[0].commit == doctest::Approx(1));
  CHECK(parts[0].apply == doctest::Approx(1));
}

TEST_CASE("checksums inside the apply count as such, those of the state twice") {
  StepTimes t = times(8, 100);
  t.state_check_ns = kMs / 10;
  t.totals_check_ns = kMs / 20;
  const auto parts = step_parts({{times(7, 80), t}});
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].apply == doctest::Approx(0.75));
  CHECK(parts[0].checksums == doctest::Approx(3.25));
}

TEST_CASE("work is that of the busiest worker, however long the part lasted") {
  StepTimes lazy = times(8, 100), busy = times(8, 100);
  for (std::size_t k = kPassed; k < actors::kStepMarks; ++k) busy.work_ns[k] += 5 * kMs;
  for (std::size_t k = 0; k < actors::kStepMarks; ++k) busy.work_ns[k] += 40 * kMs;  // since ever
  StepTimes before = times(7, 80);
  for (std::int64_t& work : before.work_ns) work += 40 * kMs;
  const auto parts = step_parts({{times(7, 80), lazy}, {before, busy}}, 0, Of::kWork);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].vote == doctest::Approx(5.2));
  CHECK(parts[0].reduce == doctest::Approx(0.2));
  CHECK(parts[0].telling == doctest::Approx(0.2));
  CHECK(parts[0].hand_over == doctest::Approx(0.1 * (102 - 96 - 2)));
  CHECK(parts[0].compute == 0);
}

// The parameters come in 10 ms, 8 of which are computed.
TEST_CASE("what is computed while parameters come is computing") {
  StepTimes before = times(7, 80), t = times(8, 90);
  before.at_ns.back() += 9 * kMs;
  t.at_ns[0] = 89 * kMs;
  for (std::size_t k = 1; k < actors::kStepMarks; ++k) t.at_ns[k] += 20 * kMs;
  t.computing_ns = 16 * kMs;
  const auto parts = step_parts({{before, t}});
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].compute == doctest::Approx(16));
  CHECK(parts[0].gather + 1 == doctest::Approx(7));  // all but 16 of 23; a checksum's 1 ms
  CHECK(parts[0].hand_over == doctest::Approx(0));
  CHECK(parts[0].step() == doctest::Approx(20 + 98 - 88));
}

TEST_CASE("only steps that everybody tells count, and only after one that counts") {
  const std::vector<StepTimes> whole{times(7, 80), times(8, 100), times(9, 120), times(11, 160)};
  const std::vector<StepTimes> lacking{times(7, 80), times(9, 120), times(11, 160)};
  CHECK(step_parts({whole}).size() == 2);
  CHECK(step_parts({whole}, 1).size() == 1);
  CHECK(step_parts({whole, lacking}).empty());
  CHECK(step_parts({}).empty());
}

TEST_CASE("bytes of a step are those of all workers since the step before") {
  const std::vector<StepTimes> a{times(7, 80, 100), times(8, 100, 150)};
  const std::vector<StepTimes> b{times(7, 80, 10), times(8, 100, 20)};
  CHECK(bytes_a_step({a, b}) == 60);
  CHECK(bytes_a_step({a, b}, 1) == 0);
}

TEST_CASE("of a parameter each other worker sends a sum and gets a total or the parameter") {
  CHECK(predicted_bytes(1000, 8) == 56000);
  CHECK(predicted_bytes(1000, 2) == 8000);
}

}  // namespace starling::bench
