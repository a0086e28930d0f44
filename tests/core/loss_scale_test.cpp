#include "core/base/loss_scale.h"

#include <doctest/doctest.h>

namespace starling {
namespace {

constexpr LossScaleRule kRule{.on = true, .first = 16, .every = 3};

TEST_CASE("loss scale: without fp16 there is none") {
  CHECK(next_scale({}, {}, false) == LossScale{});
  CHECK(next_scale({}, {5, 2}, true) == LossScale{});
}

TEST_CASE("loss scale: begins as the job says, also after a step that had none") {
  CHECK(next_scale(kRule, {}, false) == LossScale{16, 1});
  CHECK(next_scale(kRule, {}, true) == LossScale{16, 1});
}

TEST_CASE("loss scale: doubled after so many steps in a row, halved after one that is skipped") {
  LossScale scale = next_scale(kRule, {}, false);
  const auto after = [&](bool skipped) { return scale = next_scale(kRule, scale, skipped); };
  CHECK(after(false) == LossScale{16, 2});
  CHECK(after(false) == LossScale{16, 3});
  CHECK(after(false) == LossScale{17, 1});
  CHECK(after(false) == LossScale{17, 2});
  CHECK(after(true) == LossScale{16, 1});  // and the count begins anew
  CHECK(after(false) == LossScale{16, 2});
  CHECK(after(true) == LossScale{15, 1});
  CHECK(after(true) == LossScale{14, 1});
}

TEST_CASE("loss scale: stays between 1 and the largest") {
  CHECK(next_scale(kRule, {0, 2}, true) == LossScale{0, 1});
  CHECK(next_scale(kRule, {LossScaleRule::kMax, 3}, false) == LossScale{LossScaleRule::kMax, 1});
}

}  // namespace
}  // namespace starling
