// How a script's processes read its data beside passes.
#include "actors/script/reading.h"

#include <doctest/doctest.h>

namespace starling::actors::script {
namespace {

using namespace std::chrono_literals;

const Digest kOne{1, 0}, kTwo{2, 0}, kThree{3, 0};

const Reading::Clock::time_point kNow{1000s};

// A ReadingRig is a Reading and its first process.
struct ReadingRig {
  explicit ReadingRig(std::uint64_t batches) : reading(batches) {}
  std::optional<std::uint64_t> next(bool paced = false, Reading::Duration after = 0s) {
    return reading.next(*process, paced, kNow + after);
  }
  bool read(std::uint64_t batch, const Digest& digest, Reading::Duration took = 1ms,
            bool paced = true) {
    return reading.read(*process, batch, digest, took, paced);
  }
  void failed(std::uint64_t batch, Reading::Duration after = 0s) {
    reading.failed(*process, batch, 1ms, kNow + after);
  }
  bool known() const { return reading.told().over; }

  Reading reading;
  std::shared_ptr<Reading::Process> process = reading.begin();
};

TEST_CASE("reading: the digest is that of all batches, in any order") {
  ReadingRig rig(3);
  CHECK(rig.next() == 0u);
  CHECK(rig.next() == 1u);
  CHECK(rig.read(1, kTwo));
  CHECK(rig.read(0, kOne));
  CHECK_FALSE(rig.known());
  CHECK(rig.next() == 2u);
  CHECK(rig.read(2, kThree));
  CHECK(rig.known());
  CHECK(rig.reading.told().digest == kOne + kTwo + kThree);
  CHECK_FALSE(rig.next());
}

TEST_CASE("reading: data that say what they are are over without a digest") {
  ReadingRig rig(3);
  rig.next();
  rig.reading.cannot_be_compared();
  CHECK(rig.known());
  CHECK_FALSE(rig.reading.told().digest);
}

// What a Dataset gives may depend on the process that reads, and on what was there when it began.
TEST_CASE("reading: the data are known when each process that is left has read all") {
  ReadingRig rig(2);
  auto second = rig.reading.begin();
  rig.read(0, kOne);
  rig.read(1, kTwo);
  CHECK_FALSE(rig.known());
  SUBCASE("it reads the same") {
    CHECK(rig.reading.next(*second, false, kNow) == 0u);
    CHECK(rig.reading.read(*second, 0, kOne, 1ms));
    CHECK(rig.reading.read(*second, 1, kTwo, 1ms));
    CHECK(rig.reading.told().digest == kOne + kTwo);
    SUBCASE("a third one begins") {
      const auto third = rig.reading.begin();
      CHECK_FALSE(rig.known());
    }
    SUBCASE("all are gone") {
      rig.process.reset();
      second.reset();
      CHECK_FALSE(rig.known());
    }
  }
  SUBCASE("it reads others") {
    CHECK(rig.reading.read(*second, 0, kOne, 1ms));
    CHECK_FALSE(rig.reading.read(*second, 1, kThree, 1ms));
    CHECK_FALSE(rig.known());
    second.reset();
    CHECK_FALSE(rig.known());  // what it has computed is in the result
    CHECK_FALSE(rig.next(true));
  }
  SUBCASE("it is gone") {
    second.reset();
    CHECK(rig.known());
  }
}

TEST_CASE("reading: data are read again for ever, and are not known once they have changed") {
  ReadingRig rig(2);
  rig.read(rig.next(true).value(), kOne);
  rig.reading.passed(*rig.process, 10s);
  rig.read(rig.next(true).value(), kTwo);
  REQUIRE(rig.known());
  CHECK_FALSE(rig.next(true));  // what was left of the first round's time is not for the next one
  rig.reading.passed(*rig.process, 1s);
  CHECK(rig.next(true) == 0u);
  CHECK(rig.read(0, kOne));
  rig.reading.passed(*rig.process, 1s);
  CHECK(rig.next(true) == 1u);
  CHECK(rig.known());
  CHECK_FALSE(rig.read(1, kThree));
  CHECK_FALSE(rig.known());
  rig.reading.passed(*rig.process, 1000s);
  CHECK_FALSE(rig.next(true));
}

// A sample that could not be read once says nothing of the data.
TEST_CASE("reading: a batch that could not be read is read again after all others") {
  ReadingRig rig(2);
  CHECK(rig.next() == 0u);
  rig.failed(0);
  CHECK_FALSE(rig.known());
  CHECK(rig.next() == 1u);
  rig.read(1, kTwo);
  CHECK_FALSE(rig.known());
  CHECK(rig.next() == 0u);
  rig.read(0, kOne);
  CHECK(rig.reading.told().digest == kOne + kTwo);
}

// Storage that fails for a minute: all batches fail, some of them more than once.
TEST_CASE("reading: batches that fail are tried again in turn, with pauses") {
  ReadingRig rig(3);
  for (int i = 0; i < 3; ++i) rig.failed(rig.next().value());
  CHECK_FALSE(rig.next());
  CHECK_FALSE(rig.next(false, 500ms));
  CHECK(rig.next(false, 1s) == 0u);
  rig.failed(0, 1s);
  CHECK_FALSE(rig.next(false, 2s));
  CHECK(rig.next(false, 60s) == 1u);
  rig.read(1, kTwo);
  CHECK(rig.next(false, 60s) == 2u);
  rig.read(2, kThree);
  CHECK(rig.next(false, 60s) == 0u);
  rig.read(0, kOne);
  CHECK(rig.known());
}

TEST_CASE("reading: data with a sample that can never be read are never known") {
  ReadingRig rig(2);
  rig.next();
  rig.next();
  rig.read(1, kTwo);
  rig.failed(0);
  for (int i = 1; i < 100; ++i) {
    const auto after = std::chrono::minutes(2 * i);
    CHECK(rig.next(false, after) == 0u);
    rig.failed(0, after);
    CHECK_FALSE(rig.next(false, after));
  }
  CHECK_FALSE(rig.known());
}

// A fifth of the time of passes until two seconds were spent, a fiftieth after that.
TEST_CASE("reading: beside passes it takes a part of their time") {
  ReadingRig rig(1000);
  CHECK(rig.next(true) == 0u);
  rig.read(0, kOne, 100ms);
  CHECK_FALSE(rig.next(true));
  rig.reading.passed(*rig.process, 500ms);
  CHECK_FALSE(rig.next(true));
  rig.reading.passed(*rig.process, 500ms);
  CHECK(rig.next(true) == 1u);
  rig.read(1, kOne, 2000ms);
  rig.reading.passed(*rig.process, 50'000ms);
  CHECK_FALSE(rig.next(true));
  rig.reading.passed(*rig.process, 150'000ms);
  CHECK(rig.next(true) == 2u);
}

}  // namespace
}  // namespace starling::actors::script
