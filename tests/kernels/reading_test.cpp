// How a script's processes read its data beside passes.
#include "kernels/bridge/reading.h"

#include <doctest/doctest.h>

namespace starling::kernels {
namespace {

using namespace std::chrono_literals;

const Digest kOne{1, 0}, kTwo{2, 0}, kThree{3, 0};

TEST_CASE("reading: the digest is that of all batches, in any order") {
  Reading reading(3);
  CHECK(reading.next(false) == 0u);
  CHECK(reading.next(false) == 1u);
  reading.read(kTwo, 1ms);
  reading.read(kOne, 1ms);
  CHECK_FALSE(reading.told().over);
  CHECK(reading.next(false) == 2u);
  reading.read(kThree, 1ms);
  CHECK(reading.told().over);
  CHECK(reading.told().digest == kOne + kTwo + kThree);
  CHECK_FALSE(reading.next(false));
}

TEST_CASE("reading: data that say what they are are over without a digest") {
  Reading reading(3);
  reading.next(false);
  reading.cannot_be_compared();
  CHECK(reading.told().over);
  CHECK_FALSE(reading.told().digest);
}

// A sample that could not be read once says nothing of the data.
TEST_CASE("reading: a batch that could not be read is read again after all others") {
  Reading reading(2);
  CHECK(reading.next(false) == 0u);
  reading.failed(0, 1ms);
  CHECK_FALSE(reading.told().over);
  CHECK(reading.next(false) == 1u);
  reading.read(kTwo, 1ms);
  CHECK_FALSE(reading.told().over);
  CHECK(reading.next(false) == 0u);
  reading.read(kOne, 1ms);
  CHECK(reading.told().digest == kOne + kTwo);
}

TEST_CASE("reading: data with a sample that can never be read are never known") {
  Reading reading(2);
  reading.next(false);
  reading.next(false);
  reading.read(kTwo, 1ms);
  reading.failed(0, 1ms);
  std::size_t tries = 0;
  while (const auto batch = reading.next(false)) {
    CHECK(*batch == 0);
    reading.failed(*batch, 1ms);
    ++tries;
  }
  CHECK(tries > 1);
  CHECK(tries < 1000);
  CHECK_FALSE(reading.told().over);
}

// A fifth of the time of passes until two seconds were spent, a fiftieth after that.
TEST_CASE("reading: beside passes it takes a part of their time") {
  Reading reading(1000);
  CHECK(reading.next(true) == 0u);
  reading.read(kOne, 100ms);
  CHECK_FALSE(reading.next(true));
  reading.passed(500ms);
  CHECK_FALSE(reading.next(true));
  reading.passed(500ms);
  CHECK(reading.next(true) == 1u);
  reading.read(kOne, 2000ms);
  reading.passed(50'000ms);
  CHECK_FALSE(reading.next(true));
  reading.passed(150'000ms);
  CHECK(reading.next(true) == 2u);
}

}  // namespace
}  // namespace starling::kernels
