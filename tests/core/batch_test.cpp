#include "core/data/batch.h"

#include <doctest/doctest.h>

#include <vector>

namespace starling {

TEST_CASE("batch: its parts are its rows, in order, with draws of their own") {
  Batch batch;
  batch.sequences = 4;
  batch.tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  batch.targets = {2, 3, 4, 5, 6, 7, 8, 9};
  batch.samples = {30, 10, 40, 20};
  batch.draw = {5, 6, 7};
  const Batch first = part_of(batch, 0, 2).value(), second = part_of(batch, 1, 2).value();
  CHECK(first.sequences == 2);
  CHECK(first.tokens == std::vector<std::int32_t>{1, 2, 3, 4});
  CHECK(first.draw == DrawKey{5, 6, 14});
  CHECK(second.tokens == std::vector<std::int32_t>{5, 6, 7, 8});
  CHECK(second.targets == std::vector<std::int32_t>{6, 7, 8, 9});
  CHECK(second.samples == std::vector<std::uint64_t>{40, 20});
  CHECK(second.x.empty());
  CHECK(second.draw == DrawKey{5, 6, 15});
  CHECK(part_of(batch, 0, 1).value().tokens == batch.tokens);
}

TEST_CASE("batch: what has no so many equal parts is refused") {
  Batch batch;
  batch.sequences = 4;
  batch.samples = {1, 2, 3, 4};
  CHECK_FALSE(part_of(batch, 0, 3));
  batch.targets = {1, 2, 3};  // an application's
  CHECK(part_of(batch, 0, 2).error().text() == "a micro-batch of 4 sequences is no 2 equal parts");
  CHECK_FALSE(part_of(Batch{}, 0, 2));
}

}  // namespace starling
