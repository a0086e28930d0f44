// What local steps ask a queue for, beside what the host does.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/device/array.h"
#include "kernels/grid/exact_mean.h"
#include "tests/kernels/each_device.h"
#include "tests/kernels/random_inputs.h"

namespace starling::kernels {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr float kEndless = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kBlocks = 37;

class OnDevice {
 public:
  explicit OnDevice(Device& device) : device_(device), queue_(device.make_queue()) {}

  template <class T>
  Array<T> put(const std::vector<T>& values) {
    Array<T> there(device_, values.size());
    there.copy_in(*queue_, 0, values);
    queue_->wait();
    return there;
  }
  std::vector<float> get(const Array<float>& there) {
    std::vector<float> values(there.size());
    there.copy_out(*queue_, 0, values);
    queue_->wait();
    return values;
  }
  Queue& queue() { return *queue_; }

 private:
  Device& device_;
  const std::unique_ptr<Queue> queue_;
};

std::vector<float> values_of(unsigned seed) {
  return normal(std::size_t{kBlocks} * kBlock, seed);
}

DEVICE_CASE("local jobs: a multiple of floats is put down or added") {
  OnDevice on(device);
  const auto from = values_of(1);
  auto to = values_of(2);
  to[5] = kNone;
  for (const bool adds : {false, true}) {
    auto there = on.put(to);
    const auto given = on.put(from);
    on.queue().multiple({.from = given.data(),
                         .factor = 0.125f,
                         .adds = adds,
                         .to = there.data(),
                         .elements = from.size()});
    const auto made = on.get(there);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const float wanted = adds ? to[i] + 0.125f * from[i] : 0.125f * from[i];
      REQUIRE((made[i] == wanted || (std::isnan(made[i]) && std::isnan(wanted))));
    }
    CHECK(std::isnan(made[5]) == adds);
  }
}

// A mask of infinities that stands still has lost nothing.
DEVICE_CASE("local jobs: what an element lost is nothing where its bits are the same") {
  OnDevice on(device);
  auto before = values_of(3), after = values_of(4);
  before[0] = after[0] = -kEndless;
  before[1] = after[1] = kNone;
  after[2] = before[2];
  before[3] = kEndless;
  const auto b = on.put(before), a = on.put(after);
  auto difference = on.put(values_of(5));
  on.queue().difference({.before = b.data(),
                         .after = a.data(),
                         .difference = difference.data(),
                         .elements = before.size()});
  const auto made = on.get(difference);
  for (std::size_t i = 0; i < 3; ++i) CHECK(made[i] == 0);
  CHECK(made[3] == kEndless);
  for (std::size_t i = 4; i < made.size(); ++i) REQUIRE(made[i] == before[i] - after[i]);
}

// Elements that are none, and statistics, have no square; but statistics that are not finite are found.
DEVICE_CASE("local jobs: the norm is exact, and finds blocks that are not finite") {
  OnDevice on(device);
  auto gradient = values_of(6);
  std::vector<std::uint16_t> used(kBlocks, kBlock), counted = used;
  used[3] = counted[3] = 100;
  counted[7] = 0;
  gradient[3 * kBlock + 100] = 1e20f;  // behind the last element
  const auto squares = [&](std::uint32_t* broken) {
    const auto g = on.put(gradient);
    const auto u = on.put(used);
    const auto c = on.put(counted);
    auto bins = Array<std::uint64_t>::pinned(device, SquareSum::kWords);
    auto found = Array<std::uint32_t>::pinned(device, 1);
    on.queue().norm({.gradient = g.data(),
                     .used = u.data(),
                     .counted = c.data(),
                     .blocks = kBlocks,
                     .bins = bins.data(),
                     .broken = found.data()});
    on.queue().wait();
    *broken = found.all()[0];
    return SquareSum::sum_of(std::span<const std::uint64_t, SquareSum::kWords>(bins.all())).value();
  };
  ExactSum wanted;
  for (std::uint32_t b = 0; b < kBlocks; ++b)
    for (std::uint32_t i = 0; i < counted[b]; ++i)
      wanted.add(double{gradient[std::size_t{b} * kBlock + i]} *
                 double{gradient[std::size_t{b} * kBlock + i]});
  std::uint32_t broken = 9;
  CHECK(squares(&broken) == wanted.value());
  CHECK(broken == 0);
  gradient[7 * kBlock + 255] = -kEndless;
  gradient[20 * kBlock] = kNone;
  (void)squares(&broken);
  CHECK(broken == 2);
}

}  // namespace
}  // namespace starling::kernels
