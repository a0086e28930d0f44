// What is sent and measured is what was noted: State's checksums beside words and state.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/grid/state.h"
#include "tests/breakable/state_tamper.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_gradients.h"
#include "tests/kernels/grid_history.h"

namespace starling::kernels {
namespace {

// Holds everything, at version 0.
struct Whole {
  Whole(const Layout& layout, Device& device, const Job& job) : state(layout, job, device) {
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      state.hold(s);
      all.push_back(s);
    }
    state.initialise(start_parameters(layout), std::vector<std::int16_t>(layout.blocks(), -9));
  }
  State state;
  std::vector<SegmentId> all;
};

// Goal: memory that changed where it was sent from is not believed where it arrives.
DEVICE_CASE("state: what is not as its sender noted it is refused, and is no damage here") {
  const Layout layout = small_layout();
  Job job = small_job(4);
  SUBCASE("fp32") {}
  SUBCASE("bf16") {
    job.precision = Precision::kBf16;
  }
  Whole worker(layout, device, job);
  State& state = worker.state;
  State other(layout, job, device);
  for (const SegmentId s : worker.all) other.hold(s);
  const std::vector<SegmentRange> all{{0, layout.segments()}};
  for (const SegmentId s : worker.all) {
    StateTamper::flip_parameter_bit(state, s, StateTamper::kHighBit);
    const auto refused = other.set_params(state.params_bytes(all));
    REQUIRE(refused.has_error());
    CHECK(refused.error().text().find("segment " + std::to_string(s)) != std::string::npos);
    CHECK(!other.parameters_damaged(worker.all));
    StateTamper::flip_parameter_bit(state, s, StateTamper::kHighBit);
    CHECK(other.set_params(state.params_bytes(all)).has_value());

    StateTamper::flip_held_bit(state, s);
    CHECK(other.set_state(state.state_bytes({s, 1}), 0).has_error());
    CHECK(other.label(s) == kNoVersion);
    StateTamper::flip_held_bit(state, s);
    CHECK(other.set_state(state.state_bytes({s, 1}), 0).has_value());
  }
}

// Goal: the exponents of a norm are those of everybody.
DEVICE_CASE("state: held exponents are compared with the working ones") {
  const Layout layout = small_layout();
  Whole worker(layout, device, small_job(4));
  State& state = worker.state;
  CHECK(!state.exponents_differ(worker.all));
  for (const SegmentId s : worker.all) {
    StateTamper::flip_exponent_bit(state, s);
    CHECK(state.exponents_differ(worker.all) == s);
    StateTamper::flip_exponent_bit(state, s);
  }
  CHECK(!state.exponents_differ({}));
}

}  // namespace
}  // namespace starling::kernels
