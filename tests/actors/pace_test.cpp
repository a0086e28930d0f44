#include "actors/worker/pace.h"

#include <doctest/doctest.h>

#include <future>

#include "kernels/models/synthetic.h"

namespace starling::actors {
namespace {

using namespace std::chrono_literals;

Job synthetic(double compute_ms, double jitter = 0) {
  Job job;
  job.model = SyntheticSpec{1000, compute_ms, jitter, {}};
  return job;
}

}  // namespace

TEST_CASE("pace: what a micro-batch takes is the longer of its time and what it needs, slowed") {
  struct Row {
    Job job;
    double slowness;
    std::chrono::nanoseconds needed, takes;
  };
  const Row rows[] = {
      {Job{}, 1, 7ms, 7ms},           {Job{}, 2.5, 8ms, 20ms},       {synthetic(20), 1, 7ms, 20ms},
      {synthetic(20), 1, 27ms, 27ms}, {synthetic(20), 3, 7ms, 60ms}, {synthetic(20), 3, 27ms, 81ms},
      {synthetic(0), 1, 0ms, 0ms},
  };
  for (const Row& row : rows)
    CHECK(micro_batch_time(row.job, row.slowness, 4, 5, row.needed) == row.takes);
  const Job varies = synthetic(20, 0.5);
  const auto& spec = std::get<SyntheticSpec>(varies.model);
  CHECK(micro_batch_time(varies, 1, 4, 5, 0ms) == kernels::compute_time(spec, varies.seed, 4, 5));
}

TEST_CASE("pace: a wait ends no earlier than its time, counted from the beginning") {
  Pace pace(synthetic(30), 1);
  const auto begun = Pace::Clock::now();
  pace.wait(begun, {}, 0, 0);
  CHECK(Pace::Clock::now() >= begun + 30ms);
  pace.wait(begun, {}, 0, 1);  // over already
}

TEST_CASE("pace: cancelling ends waits, those to come too") {
  Pace pace(synthetic(3'600'000), 1000);
  auto waits = std::async(std::launch::async, [&] { pace.wait(Pace::Clock::now(), {}, 0, 0); });
  pace.cancel();
  waits.get();
  pace.wait(Pace::Clock::now(), {}, 0, 1);
}

}  // namespace starling::actors
