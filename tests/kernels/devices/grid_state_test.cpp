#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/grid/state.h"
#include "kernels/optim/optimizer.h"
#include "tests/breakable/state_tamper.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_group.h"
#include "tests/kernels/grid_history.h"

namespace starling::kernels {
namespace {

// Goal: P1 as far as arithmetic goes. Method: the same job in groups of 1 to 5 workers with random
// shares, orders of adding and of side entries, through a skipped step and a jump in scale, against
// one worker on the host; of one part and of parts with one use and with two.
DEVICE_CASE("state: totals, norm, state and digest do not depend on who did what") {
  const auto same_for_all = [&](const Layout& layout, const Job& job) {
    const History alone = train(layout, job, host_device(), 1, 0);
    CHECK(alone.side_entries > 0);
    CHECK(alone.records[4].skipped);
    for (std::uint32_t world = 1; world <= 5; ++world) {
      const History shared = train(layout, job, device, world, world);
      CAPTURE(world);
      CHECK(shared.records == alone.records);
      CHECK(shared.digests == alone.digests);
      CHECK(shared.parameters == alone.parameters);
      CHECK(shared.side_entries == alone.side_entries);
    }
  };
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd}) {
    for (const std::uint32_t M : {8u, 6u}) {
      Job job = small_job(M);
      job.optimizer.kind = kind;
      same_for_all(small_layout(), job);
      same_for_all(tied_layout(), job);
    }
  }
}

DEVICE_CASE("state: what changes behind its back is not intact; what it writes itself is") {
  const Layout layout = small_layout();
  Alone worker(layout, device, small_job(8));
  State& state = worker.state;
  const auto whole = [&] {
    return std::ranges::all_of(worker.all, [&](SegmentId s) {
      return state.intact(s) && !state.parameters_damaged({&s, 1});
    });
  };
  state.initialise(start_parameters(layout), std::vector<std::int16_t>(layout.blocks(), -20));
  CHECK(whole());
  worker.totals.set_pending(0);
  state.apply(worker.totals, StepRecord{.version = 0, .norm = 1}, worker.all);
  state.publish(worker.all);
  CHECK(whole());
  State other(layout, worker.job, device);
  const SegmentRange range{0, layout.segments()};
  for (const SegmentId s : worker.all) other.hold(s);
  REQUIRE(other.set_state(state.state_bytes(range), 1));
  CHECK(std::ranges::all_of(worker.all, [&](SegmentId s) { return other.intact(s); }));
  State loaded(layout, worker.job, device);
  for (const SegmentId s : worker.all) {
    loaded.hold(s);
    Bytes scratch;
    REQUIRE(loaded.set_values(state.values(s, scratch), 1));
    CHECK(loaded.intact(s));
    CHECK(loaded.label(s) == 1);
  }
  CHECK(loaded.digest_part(worker.all) == state.digest_part(worker.all));

  for (const SegmentId s : worker.all) {
    StateTamper::flip_held_bit(state, s);
    CHECK(!state.intact(s));
    StateTamper::flip_held_bit(state, s);
    StateTamper::flip_parameter_bit(state, s);
    CHECK(state.parameters_damaged({&s, 1}));
    StateTamper::flip_parameter_bit(state, s);
    CHECK(whole());
  }
}

// What a replica that computes wrongly has: its own checksum says nothing, its digest does.
DEVICE_CASE("state: a copy that was computed otherwise is intact and has another digest") {
  const Layout layout = small_layout();
  Alone worker(layout, device, small_job(8));
  State& state = worker.state;
  state.initialise(start_parameters(layout), std::vector<std::int16_t>(layout.blocks(), -20));
  const Digest before = state.digest_part(worker.all);
  for (const SegmentId s : worker.all) {
    const Digest part = state.digest_part(std::span(&s, 1));
    StateTamper::miscompute_held(state, s);
    CHECK(state.intact(s));
    CHECK(state.digest_part(std::span(&s, 1)) != part);
    StateTamper::miscompute_held(state, s);
  }
  CHECK(state.digest_part(worker.all) == before);
}

// The digest with which whoever has finished compares what it saves.
DEVICE_CASE("state: parts of the parameters' digest add up, and see every changed bit") {
  const Layout layout = small_layout();
  Alone worker(layout, device, small_job(8));
  State& state = worker.state;
  state.initialise(start_parameters(layout), std::vector<std::int16_t>(layout.blocks(), -20));
  const Digest whole = state.parameters_part(worker.all);
  Digest sum{};
  for (const SegmentId s : worker.all) sum = sum + state.parameters_part(std::span(&s, 1));
  CHECK(sum == whole);
  State other(layout, worker.job, device);  // which holds nothing, and was sent the parameters
  const SegmentRange range{0, layout.segments()};
  CHECK(other.parameters_part(worker.all) != whole);
  REQUIRE(other.set_params(state.params_bytes(std::span(&range, 1))));
  CHECK(other.parameters_part(worker.all) == whole);
  for (const SegmentId s : worker.all) {
    StateTamper::flip_parameter_bit(state, s);
    CHECK(state.parameters_part(worker.all) != whole);
    StateTamper::flip_parameter_bit(state, s);
  }
  CHECK(state.parameters_part(worker.all) == whole);
}

// Goal: one step against the plain words of the design, in a second implementation.
DEVICE_CASE("state: a step is the optimizer on fp32(T 2^x / M), clipped, decayed by tensor") {
  const Layout layout = small_layout();
  Alone worker(layout, device, small_job(8));
  const auto parameters = start_parameters(layout);
  std::vector<std::int16_t> exponents(layout.blocks(), -20);
  worker.state.initialise(parameters, exponents);
  std::mt19937_64 random(5);
  std::vector<float> gradient(layout.elements());
  double squares = 0;
  for (std::uint32_t b = 0; b < layout.blocks(); ++b)
    for (std::uint32_t i = 0; i < layout.used(b); ++i) {
      const std::size_t at = std::size_t{b} * kBlock + i;
      worker.totals.sums()[at] = static_cast<std::int32_t>(random()) >> 8;
      gradient[at] = static_cast<float>(worker.totals.sums()[at] * 0x1p-20 / 8);
      squares += double{gradient[at]} * gradient[at];
    }
  worker.totals.take(worker.all);
  const double norm =
      std::sqrt(worker.state.partial_norm(worker.totals, worker.all).squares.value());
  CHECK(norm == doctest::Approx(std::sqrt(squares)).epsilon(1e-12));  // a plain sum in double

  StepRecord record{.version = 0, .norm = norm};
  worker.totals.set_pending(0);
  worker.state.apply(worker.totals, record, worker.all);
  worker.state.publish(worker.all);
  StepScale scale;
  scale.rate = learning_rate(worker.job.optimizer, 0, worker.job.steps);
  scale.clip_scale = clip_factor(norm, worker.job.optimizer.clip);
  REQUIRE(scale.clip_scale < 1);
  const auto after = worker.state.copy_parameters();
  for (const TensorPlace& tensor : layout.tensors()) {
    const std::size_t n = tensor.spec.elements(), at = std::size_t{tensor.first_block} * kBlock;
    std::vector<float> w(parameters.begin() + static_cast<std::ptrdiff_t>(at),
                         parameters.begin() + static_cast<std::ptrdiff_t>(at + n));
    std::vector<float> m(n), v(n);
    update(worker.job.optimizer, scale, tensor.spec.shape.size() >= 2,
           std::span<const float>(gradient).subspan(at, n), w, m, v);
    CAPTURE(tensor.spec.name);
    CHECK(std::equal(w.begin(), w.end(), after.begin() + std::ptrdiff_t(at)));
  }
  for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
    float largest = 0;
    for (std::uint32_t i = 0; i < kBlock; ++i)
      largest = std::max(largest, std::fabs(gradient[std::size_t{b} * kBlock + i]));
    CHECK(worker.state.copy_exponents()[b] == next_exponent(Grid(8), -20, largest, 0, 0));
  }
  for (const SegmentId s : worker.all) CHECK(worker.state.label(s) == 1);
}

DEVICE_CASE("state: a skipped step moves exponents and labels, not weights and moments") {
  const Layout layout = small_layout();
  Alone worker(layout, device, small_job(8));
  const auto parameters = start_parameters(layout);
  worker.state.initialise(parameters, std::vector<std::int16_t>(layout.blocks(), -20));
  for (auto& t : worker.totals.sums().first(kBlock)) t = 1 << 30;
  worker.totals.take(worker.all);
  worker.totals.set_pending(0);
  worker.state.apply(worker.totals, {.version = 0, .norm = 1, .skipped = true}, worker.all);
  Bytes scratch;
  const SegmentValues held = worker.state.values(0, scratch);
  CHECK(std::equal(held.weights.begin(), held.weights.end(), parameters.begin()));
  for (std::size_t i = 0; i < held.first.size(); ++i) {
    REQUIRE(held.first[i] == 0);
    REQUIRE(held.second[i] == 0);
  }
  CHECK(held.exponents[0] > -20);
  CHECK(held.exponents[1] == -20);  // zero total
  CHECK(worker.state.label(0) == 1);
}

DEVICE_CASE("state: extremes of fp32 pass through a step unharmed") {
  const Layout layout({{"a", {4, kBlock}}, {"b", {4 * kBlock}}}, /*segment_blocks=*/2);
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr std::uint32_t M = 4;
  Job job = small_job(M);
  job.optimizer.kind = OptimizerKind::kSgd;
  Group group(layout, job, device, 2, 1);
  const std::vector<float> zeros(layout.elements());
  group.start(zeros, start_exponents(layout, M, zeros));
  const GradientOf extremes = [&](auto, Version, MicroBatch m) {
    std::vector<float> g(layout.elements());
    g[0] = kMax;                               // FLT_MAX in all
    g[kBlock] = m == 0 ? kMax : -kMax / 3;     // nearly cancels
    g[2 * kBlock] = kTiny;                     // subnormal
    g[3 * kBlock + 7] = m % 2 ? kMax : kTiny;  // both in a block
    return g;                                  // the rest zero
  };
  for (int step = 0; step < 3; ++step) {
    const StepRecord record = group.step(extremes);
    CHECK_FALSE(record.skipped);
    // 1, about 0 and 1/2 times FLT_MAX; the subnormal does not show.
    CHECK(record.norm == doctest::Approx(double{kMax} * std::sqrt(1.25)).epsilon(1e-7));
    for (const float w : group.state(1).copy_parameters()) REQUIRE(std::isfinite(w));
  }
  const auto x = group.state(0).copy_exponents();
  CHECK(x[0] == kExponentMax);
  CHECK(x[1] == kExponentMax);  // for its side entries
  CHECK(x[2] == kExponentMin);
  CHECK(x[3] == kExponentMax);
  for (std::uint32_t b = 4; b < layout.blocks(); ++b) CHECK(x[b] == kExponentMin);  // zeros
}

// ---- Bytes ------------------------------------------------------------------------------------

DEVICE_CASE("state: initialising a missing segment touches neither labelled nor working values") {
  const Layout layout = small_layout();
  Alone worker(layout, device, small_job(4));
  const auto parameters = start_parameters(layout);
  const std::vector<std::int16_t> exponents(layout.blocks(), -9);
  worker.state.initialise(parameters, exponents);
  worker.totals.set_pending(0);
  const SegmentId applied = 0;
  worker.state.apply(worker.totals, {.version = 0, .norm = 1}, std::span(&applied, 1));
  worker.state.publish(std::span(&applied, 1));
  const std::vector<float> working = worker.state.copy_parameters();
  REQUIRE(working != parameters);
  const Digest kept = worker.state.digest_part(std::span(&applied, 1));
  StateTamper::flip_parameter_bit(worker.state, 0);
  worker.state.drop(1);
  worker.state.hold(1);
  worker.state.initialise_segment(1, parameters, exponents);
  const SegmentId flipped = 0;
  CHECK(worker.state.parameters_damaged({&flipped, 1}));  // not taken for good anew
  StateTamper::flip_parameter_bit(worker.state, 0);
  CHECK(worker.state.intact(1));
  CHECK(worker.state.copy_parameters() == working);
  CHECK(worker.state.label(0) == 1);
  CHECK(worker.state.digest_part(std::span(&applied, 1)) == kept);
  CHECK(worker.state.label(1) == 0);
  State anew(layout, worker.job, device);
  anew.hold(1);
  anew.initialise(parameters, exponents);
  const SegmentId missing = 1;
  CHECK(worker.state.digest_part(std::span(&missing, 1)) ==
        anew.digest_part(std::span(&missing, 1)));
}

DEVICE_CASE("state: dropping a segment forgets it and no other") {
  const Layout layout = small_layout();
  Alone worker(layout, device, small_job(4));
  worker.state.initialise(start_parameters(layout), std::vector<std::int16_t>(layout.blocks(), -9));
  std::vector<Digest> before;
  for (const SegmentId s : worker.all) before.push_back(worker.state.digest_part(std::span(&s, 1)));
  worker.state.drop(1);
  CHECK_FALSE(worker.state.holds(1));
  CHECK(worker.state.label(1) == kNoVersion);
  for (const SegmentId s : worker.all)
    if (s != 1) CHECK(worker.state.digest_part(std::span(&s, 1)) == before[s]);
  worker.state.hold(1);
  Bytes scratch;
  for (const float w : worker.state.values(1, scratch).weights) REQUIRE(w == 0);
}

DEVICE_CASE("state: a moved copy has the digest of the source, whatever was there before") {
  const Layout layout = small_layout();
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    Job job = small_job(4);
    job.optimizer.kind = kind;
    Group group(layout, job, device, 1, 0);
    const auto parameters = start_parameters(layout);
    group.start(parameters, std::vector<std::int16_t>(layout.blocks(), -20));
    for (int step = 0; step < 3; ++step)
      group.step([&](auto p, Version v, MicroBatch m) { return disturbed(layout, p, v, m); });
    State& source = group.state(0);

    State target(layout, job, device);
    target.hold(0);
    target.hold(2);
    target.hold(3);
    target.initialise(parameters, std::vector<std::int16_t>(layout.blocks(), 3));
    const auto moved = target.set_state(source.state_bytes({2, 2}), 3);
    REQUIRE(moved.has_value());
    CHECK(moved.value() == SegmentRange{2, 2});
    const std::vector<SegmentId> two{2, 3};
    CHECK(target.digest_part(two) == source.digest_part(two));
    CHECK(target.label(2) == 3);
    CHECK(target.label(3) == 3);
    CHECK(target.label(0) == 0);

    const std::vector<SegmentRange> ranges{{3, 2}, {0, 1}};
    const auto gathered = target.set_params(source.params_bytes(ranges));
    REQUIRE(gathered.has_value());
    CHECK(gathered.value() == ranges);
    const auto there = target.copy_parameters(), from = source.copy_parameters();
    for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
      const bool given = b < 4 || b >= 12;
      const auto at = std::size_t{b} * kBlock;
      CHECK(target.copy_exponents()[b] == (given ? source.copy_exponents()[b] : 3));
      const auto& expected = given ? from : parameters;
      for (std::size_t i = at; i < at + kBlock; ++i) REQUIRE(there[i] == expected[i]);
    }
  }
}

// Goal: no bytes make a decoder read past its end or change anything when it refuses.
// Method: every shorter length, a longer one, and each field spoilt.
DEVICE_CASE("state: bytes that do not hold are refused and change nothing") {
  const Layout layout = small_layout();
  Job job = small_job(4);
  std::size_t framed = sizeof(float);
  SUBCASE("fp32") {}
  SUBCASE("bf16") {
    job.precision = Precision::kBf16;
    framed = sizeof(std::uint16_t);
  }
  Alone worker(layout, device, job);
  State& state = worker.state;
  state.initialise(start_parameters(layout), std::vector<std::int16_t>(layout.blocks(), -9));
  const std::vector<SegmentRange> ranges{{0, 1}};
  const Bytes params = state.params_bytes(ranges), held = state.state_bytes({0, 1});
  State other(layout, job, device);
  for (SegmentId s = 0; s < 4; ++s) other.hold(s);
  other.initialise(std::vector<float>(layout.elements()),
                   std::vector<std::int16_t>(layout.blocks(), 1));
  const std::vector<SegmentId> held_by_other{0, 1, 2, 3};
  const Digest before = other.digest_part(held_by_other);

  const auto refused = [&](bool is_params, const Bytes& bytes, Version label = 0) {
    const bool error =
        is_params ? other.set_params(bytes).has_error() : other.set_state(bytes, label).has_error();
    const auto p = other.copy_parameters();
    return error && other.digest_part(held_by_other) == before && other.copy_exponents()[0] == 1 &&
           std::all_of(p.begin(), p.end(), [](float x) { return x == 0; });
  };
  for (const bool is_params : {true, false}) {
    const Bytes& good = is_params ? params : held;
    for (std::size_t n = 0; n < good.size(); n += n < 64 ? 1 : 97)
      REQUIRE(refused(is_params, Bytes(good.begin(), good.begin() + std::ptrdiff_t(n))));
    Bytes longer = good;
    longer.push_back(0);
    CHECK(refused(is_params, longer));
    // Fields: first and count of the range, its checksum, then an exponent, then padding of block 2.
    const std::size_t range = is_params ? 4 : 8, exponents = range + 8 + 8;
    struct Spoil {
      const char* name;
      std::size_t at;
      std::uint32_t value;
    };
    const std::size_t floats = exponents + 4 * sizeof(std::int16_t);
    const Spoil spoils[] = {
        {"first segment beyond the layout", range, 5},
        {"first segment far beyond", range, ~0u},
        {"no segments", range + 4, 0},
        {"too many segments", range + 4, 6},
        {"segments that wrap around", range + 4, ~0u},
        {"exponent above", exponents, 101},
        {"exponent below", exponents, std::uint32_t(std::uint16_t(-141))},
        {"padding", floats + (2 * kBlock + 88) * (is_params ? framed : sizeof(float)), 1},
    };
    for (const Spoil& spoil : spoils) {
      CAPTURE(spoil.name);
      Bytes bad = good;
      std::memcpy(bad.data() + spoil.at, &spoil.value, sizeof spoil.value);
      CHECK(refused(is_params, bad));
    }
  }
  Bytes many = params;
  many[0] = 200;  // ranges
  CHECK(refused(true, many));
  CHECK(refused(false, held, 1));                    // another label
  CHECK(refused(false, state.state_bytes({4, 1})));  // not held there
  CHECK(refused(false, state.state_bytes({3, 2})));  // half of it not held
  CHECK(other.set_params(params).has_value());
  CHECK(other.set_state(held, 0).has_value());
}

DEVICE_CASE("state: the digest sees every weight, moment, exponent and segment") {
  const Layout layout = small_layout();
  Alone worker(layout, device, small_job(4));
  State& state = worker.state;
  state.initialise(start_parameters(layout), std::vector<std::int16_t>(layout.blocks(), -9));
  const Digest before = state.digest_part(worker.all);
  const Bytes good = state.state_bytes({1, 1});
  const std::size_t exponents = 24, floats = exponents + 2 * layout.block_count(1);
  const std::size_t array = std::size_t{layout.block_count(1)} * kBlock * 4;
  for (const std::size_t at : {exponents, floats, floats + array, floats + 2 * array}) {
    Bytes flipped = good;
    flipped[at] ^= 1;
    REQUIRE(state.set_state(flipped, 0).has_error());
    CHECK(state.label(1) == kNoVersion);
    CHECK(state.digest_part(worker.all) != before);
    REQUIRE(state.set_state(good, 0).has_value());
    CHECK(state.digest_part(worker.all) == before);
    CHECK(state.intact(1));
  }
  const std::vector<SegmentId> some{4, 0, 2}, others{1, 3};
  CHECK(state.digest_part(some) + state.digest_part(others) == before);
  CHECK(state.digest_part(some) != state.digest_part(others));
}

}  // namespace
}  // namespace starling::kernels
