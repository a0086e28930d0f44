#include "kernels/models/step_probe.h"

#include <doctest/doctest.h>

namespace starling::kernels {
namespace {

Job job_of(OptimizerKind kind) {
  Job job;
  job.steps = 1000;
  job.optimizer.kind = kind;
  job.optimizer.warmup_steps = 10;
  return job;
}

}  // namespace

// These digests are what every build on every machine has to give. One that changes says that state
// of another build is not this one's: then the protocol's version has to change with it.
TEST_CASE("step probe: every build has the same bits") {
  CHECK(to_string(probe_steps(job_of(OptimizerKind::kAdamW))) ==
        "e36961ab94e5ff2c875d48669f1846c8");
  CHECK(to_string(probe_steps(job_of(OptimizerKind::kAdam))) == "9e43385503c3ff94221078b632eddec1");
  CHECK(to_string(probe_steps(job_of(OptimizerKind::kSgd))) == "dcb560fed719b79992e276abb7320c5a");
}

TEST_CASE("step probe: whatever goes into a step goes into it") {
  const Job job = job_of(OptimizerKind::kAdamW);
  using Change = void (*)(Job&);
  const Change changes[] = {[](Job& j) { j.optimizer.beta1 = 0.91; },
                            [](Job& j) { j.optimizer.beta2 = 0.96; },
                            [](Job& j) { j.optimizer.epsilon = 2e-8; },
                            [](Job& j) { j.optimizer.weight_decay = 0; },
                            [](Job& j) { j.optimizer.clip = 0.5; },
                            [](Job& j) { j.optimizer.peak_rate = 2e-3; },
                            [](Job& j) { j.optimizer.warmup_steps = 11; },
                            [](Job& j) { j.optimizer.floor = 0.2; },
                            [](Job& j) { j.optimizer.kind = OptimizerKind::kSgd; },
                            [](Job& j) { j.micro_batches = 16; }};
  for (const Change change : changes) {
    Job other = job;
    change(other);
    CHECK(probe_steps(other) != probe_steps(job));
  }
}

}  // namespace starling::kernels
