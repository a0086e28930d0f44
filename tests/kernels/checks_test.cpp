// Wrong addresses and lengths of our own end the process where they are handed over.

#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "core/base/exit.h"
#include "core/job/layout.h"
#include "kernels/cpu/table.h"
#include "kernels/device/array.h"
#include "kernels/device/emulated.h"
#include "kernels/device/jobs.h"
#include "tests/kernels/ending.h"

namespace starling::kernels {
namespace {

// The wrong ones end a child at a check; what is right goes through.
template <class Job>
void hold(const Job& right, const std::function<void(const Job&)>& take,
          const std::vector<std::function<void(Job&)>>& wrongs) {
  CHECK(ending_of([&] { take(right); }).status == 0);
  for (std::size_t i = 0; i < wrongs.size(); ++i) {
    CAPTURE(i);
    Job wrong = right;
    wrongs[i](wrong);
    const Ending ending = ending_of([&] { take(wrong); });
    CHECK(ending.status == kExitInternal);
    CHECK_MESSAGE(ending.text.find("does not hold") != std::string::npos, ending.text);
  }
}

}  // namespace

TEST_CASE("checks: a product of wrong leading dimensions, trims or addresses ends the process") {
  alignas(64) static float scratch[16];
  float a[64] = {}, b[64] = {}, c[64] = {};
  Gemm right{.m = 8, .n = 8, .k = 8};
  right.a = a, right.b = b, right.c = c, right.lda = right.ldb = right.ldc = 8;
  right.add = c, right.ldadd = 8, right.trim = Trim::kLowerC, right.scratch = scratch;
  hold<Gemm>(right, [](const Gemm& g) { check(g); },
             {[](Gemm& g) { g.lda = 7; }, [](Gemm& g) { g.ldb = 7; }, [](Gemm& g) { g.ldc = 7; },
              [](Gemm& g) { g.k = 9; }, [](Gemm& g) { g.ldadd = 9; },
              [](Gemm& g) { g.a = nullptr; }, [](Gemm& g) { g.n = 7; },
              [](Gemm& g) { g.trim = Trim::kLowerA, g.k = 4; }, [](Gemm& g) { ++g.scratch; }});
}

TEST_CASE("checks: jobs of a queue with wrong addresses or numbers end the process") {
  const auto device = open_device("reference", {}).value();
  const auto queue = device->make_queue();
  Array<float> floats(*device, 2 * kBlock);
  Array<std::int32_t> sums(*device, 2 * kBlock);
  std::int16_t exponents[2] = {};
  std::uint64_t weighted[1], seeds[1] = {}, checksums[1];
  std::uint32_t outside[3], broken[1];
  const SegmentBlocks segment{0, 1, 1};
  AddJob add{floats.data(), 0,        1,       exponents, sums.data(), 1000, false, {},
             {&segment, 1}, weighted, outside, broken};
  hold<AddJob>(add, [&](const AddJob& j) { queue->add(j); },
               {[](AddJob& j) { j.scale = 127; }, [](AddJob& j) { j.scale = -1; },
                [](AddJob& j) { j.first_block = 2; }, [](AddJob& j) { ++j.gradient; },
                [](AddJob& j) { j.limit = 0; }, [](AddJob& j) { j.broken = nullptr; },
                [](AddJob& j) { j.segments.list = nullptr; },
                [](AddJob& j) { j.by_dice = true, j.limit = (1 << 14) + 1; }});
  const SumJob sum{sums.data(), sums.data(), sums.data(), 2 * kBlock};
  hold<SumJob>(sum, [&](const SumJob& j) { queue->sum(j); },
               {[](SumJob& j) { j.elements -= 1; }, [](SumJob& j) { ++j.a; },
                [](SumJob& j) { j.b = nullptr; }});
  const ChecksumJob checksum{exponents, {floats.data(), nullptr, nullptr}, 0, {&segment, 1}, seeds,
                             checksums};
  hold<ChecksumJob>(
      checksum, [&](const ChecksumJob& j) { queue->checksum(j); },
      {[](ChecksumJob& j) { j.arrays[1] = j.arrays[0] + 1; },
       [](ChecksumJob& j) { j.first_block = 2; }, [](ChecksumJob& j) { j.seeds = nullptr; }});
  std::uint16_t used[2] = {};
  std::uint8_t groups[2] = {};
  const LocalStepJob step{floats.data(),    used,    groups,          floats.data(),
                          floats.data(),    nullptr, UpdateNumbers{}, floats.data(),
                          Precision::kFp32, 0};
  hold<LocalStepJob>(step, [&](const LocalStepJob& j) { queue->local_step(j); },
                     {[](LocalStepJob& j) { j.blocks = 1, j.precision = Precision::kBf16; },
                      [](LocalStepJob& j) { j.blocks = 1, ++j.gradient; },
                      [](LocalStepJob& j) { j.blocks = 1, j.groups = nullptr; }});
}

TEST_CASE("checks: work with memory that is not backed ends the process") {
  EmulatedDevice device;
  const auto queue = device.make_queue();
  auto held = Array<float>::sparse(device, 64 * kBlock);  // a page has four blocks
  auto totals = Array<std::int32_t>::sparse(device, 64 * kBlock);
  held.back(0, 32 * kBlock);
  totals.back(0, 32 * kBlock);
  auto words = Array<std::uint64_t>::pinned(device, 1);
  auto exponents = Array<std::int16_t>::pinned(device, 64);
  const std::uint64_t seed = 0;
  std::vector<float> some(kBlock);
  const auto with = [&](std::uint32_t block, std::size_t elements) {
    const auto begin = std::size_t{block} * kBlock;
    return std::vector<std::function<void()>>{
        [=, &queue, &held] { queue->zero(held.data() + begin, elements * sizeof(float)); },
        [=, &queue, &held, &some] { held.copy_in(*queue, begin, std::span(some).first(elements)); },
        [=, &queue, &held, &some] {
          held.copy_out(*queue, begin, std::span(some).first(elements));
        },
        [=, &queue, &totals, &words] {
          const SegmentBlocks segment{0, block, 1};
          queue->weigh({totals.data(), {&segment, 1}, words.data()});
        },
        [=, &queue, &totals] {
          auto* const at = totals.data() + begin;
          queue->sum({at, at, at, elements});
        },
        [=, &queue, &held, &exponents, &words, &seed] {
          const SegmentBlocks segment{0, block, 1};
          queue->checksum({exponents.data(),
                           {held.data(), nullptr, nullptr},
                           0,
                           {&segment, 1},
                           &seed,
                           words.data()});
        }};
  };
  for (const auto& work : with(31, kBlock)) CHECK(ending_of(work).status == 0);
  for (const auto& work : with(32, kBlock)) {
    const Ending ending = ending_of(work);
    CHECK(ending.status == kExitInternal);
    CHECK_MESSAGE(ending.text.find("does not hold") != std::string::npos, ending.text);
  }
  held.release(0, 32 * kBlock);
  for (const std::size_t i : {0, 1, 2, 5})
    CHECK(ending_of(with(31, kBlock)[i]).status == kExitInternal);
}

}  // namespace starling::kernels
