#include "core/data/held_out.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling {
namespace {

Job job_with(const std::string& path, std::uint32_t batches = 0) {
  Job job = job_for(DataKind::kText, path, 3, 256);  // 3 micro-batches of 2 sequences of 3 bytes
  job.evaluate.path = path;
  job.evaluate.every = 4;
  job.evaluate.batches = batches;
  return job;
}

}  // namespace

TEST_CASE("held out: whole batches from the first sample on, the same at every evaluation") {
  const DataFolder folder;
  const auto path = folder.write("held", std::string(3 * 11 + 1, 'a') + "bcd");  // 12 sequences
  const auto all = HeldOut::open(job_with(path)).value();
  CHECK(all->batches() == 6);
  CHECK(HeldOut::open(job_with(path, 2)).value()->batches() == 2);
  CHECK(all->batch(4, 5).value().targets.back() == 'd');
  CHECK(all->batch(4, 5).value().tokens == all->batch(8, 5).value().tokens);
  CHECK(all->batch(4, 5).value().sequences == 2);
  CHECK(all->batch(4, 5).value().draw == DrawKey{1, 4, 8});
  CHECK_FALSE(all->due(0));
  CHECK_FALSE(all->due(3));
  CHECK(all->due(4));
  const auto few = HeldOut::open(job_with(path, 7));
  REQUIRE_FALSE(few);
  CHECK(has(few.error().text(), "7 batches of 2 samples must be held out, there are 12 samples"));
}

TEST_CASE("held out: of a job of local steps a batch is one of a pass, with draws of its own") {
  const DataFolder folder;
  Job job = job_with(folder.write("held", std::string(3 * 12 + 1, 'a')));
  job.micro_batch_sequences = 4;
  job.local.steps = 2;
  const auto held_out = HeldOut::open(job).value();
  CHECK(held_out->batches() == 6);
  CHECK(held_out->batch(4, 0).value().sequences == 2);
  // The last pass of the last micro-batch draws with number 3 * 2 - 1.
  CHECK(held_out->batch(4, 0).value().draw == DrawKey{1, 4, 6});
}

// Goal: each held-out batch comes with exactly one micro-batch.
TEST_CASE("held out: batches are spread evenly over micro-batches, each once") {
  const DataFolder folder;
  const auto path = folder.write("held", std::string(3 * 40 + 1, 'a'));
  for (const std::uint32_t batches : {1u, 2u, 3u, 7u, 20u}) {
    CAPTURE(batches);
    const auto held_out = HeldOut::open(job_with(path, batches)).value();
    std::uint32_t next = 0;
    for (MicroBatch m = 0; m < 3; ++m) {
      const auto [first, past] = held_out->of(m);
      CHECK(first == next);
      CHECK(past - first <= (batches + 2) / 3);
      next = past;
    }
    CHECK(next == batches);
  }
}

}  // namespace starling
