// What two jobs have in common: the result, the state at every version, and what differs.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/job/job.h"
#include "tests/core/job_text.h"

namespace starling {

TEST_CASE("the hash is of what reaches the result, and of what all must agree on") {
  const Job job = parse_job(kGood, ".").value();
  const auto hash = job_hash(job);
  const auto with = [&](auto change) {
    Job other = job;
    change(other);
    return job_hash(other);
  };
  CHECK(with([](Job& j) { j.name = "other"; }) == hash);
  CHECK(with([](Job& j) { j.data.path = "/elsewhere"; }) == hash);
  CHECK(with([](Job& j) { j.replicas = 1; }) == hash);
  CHECK(with([](Job& j) {
          j.elastic.start_timeout_ms = 78, j.elastic.coordinator_timeout_ms = 79;
        }) == hash);
  CHECK(with([](Job& j) { j.elastic.standstill_ms = 77, j.elastic.standstill_steps = 78; }) ==
        hash);
  CHECK(with([](Job& j) { j.elastic.ledger_events = false; }) == hash);
  CHECK(with([](Job& j) { j.elastic.shares = ShareRule::kEqual; }) == hash);
  CHECK(with([](Job& j) { j.elastic.slowest = 8; }) == hash);
  CHECK(with([](Job& j) { j.elastic.seal = SealRule::kOff; }) == hash);
  CHECK(with([](Job& j) { j.optimizer.schedule_steps = j.steps; }) == hash);
  CHECK(with([](Job& j) { j.seed = 2; }) != hash);
  CHECK(with([](Job& j) { j.steps = 61; }) != hash);
  CHECK(with([](Job& j) { j.micro_batches = 4; }) != hash);
  CHECK(with([](Job& j) { j.micro_batch_sequences = 2; }) != hash);
  CHECK(with([](Job& j) { j.isa = "avx2"; }) != hash);
  CHECK(with([](Job& j) { std::get<GptSpec>(j.model).layers = 3; }) != hash);
  CHECK(with([](Job& j) { j.optimizer.beta2 = 0.96; }) != hash);
  CHECK(with([](Job& j) { j.data.extensions = {".h"}; }) != hash);
  CHECK(with([](Job& j) { j.elastic.digest_every = 3; }) !=
        hash);  // all members add at the same steps
  // A worker with a longer lease is heard too rarely by a leader with a shorter one.
  CHECK(with([](Job& j) { j.elastic.lease_ms = 10 * j.elastic.lease_ms; }) != hash);
  // Parts of other versions than the leader's would never be completed.
  const auto checkpointed = with([](Job& j) { j.checkpoint = {"/c", 5, 1}; });
  CHECK(checkpointed != hash);
  CHECK(with([](Job& j) { j.checkpoint = {"/c", 6, 1}; }) != checkpointed);
  CHECK(with([](Job& j) { j.checkpoint = {"/elsewhere/c", 5, 3}; }) == checkpointed);
}

// Goal: a job goes on from checkpoints of jobs with the same state at every version, and of no
// other.
TEST_CASE("the state hash is of what reaches a bit of the state") {
  Job job = parse_job(replaced(kGood, "warmup_steps = 10", "schedule_steps = 60"), ".").value();
  const auto same_after = [&](auto change) {
    Job other = job;
    change(other);
    return state_hash(other) == state_hash(job);
  };
  CHECK(same_after([](Job& j) { j.steps = 500; }));
  CHECK(same_after([](Job& j) { j.checkpoint = {"/c", 5, 1}; }));
  CHECK(same_after([](Job& j) { j.elastic.digest_every = 3; }));
  CHECK(same_after([](Job& j) { j.evaluate = {.path = "/e", .every = 5}; }));
  CHECK(same_after([](Job& j) { j.replicas = 1; }));
  CHECK(same_after([](Job& j) { j.recompute = true, j.offload = Offload::kMoments; }));
  CHECK(same_after([](Job& j) { j.elastic.lease_ms = 77; }));
  CHECK_FALSE(same_after([](Job& j) { j.seed = 2; }));
  CHECK_FALSE(same_after([](Job& j) { j.micro_batches = 4; }));
  CHECK_FALSE(same_after([](Job& j) { j.precision = Precision::kBf16; }));
  CHECK_FALSE(same_after([](Job& j) { j.precision = Precision::kFp16; }));
  CHECK(same_after([](Job& j) { j.loss_scale = 3; }));  // of no use without fp16
  CHECK_FALSE(same_after([](Job& j) { j.optimizer.clip = 2; }));
  // Without a schedule of its own, the learning rates depend on the number of steps.
  job.optimizer.schedule_steps = 0;
  CHECK_FALSE(same_after([](Job& j) { j.steps = 500; }));
  CHECK(same_after([](Job& j) { j.checkpoint = {"/c", 5, 1}; }));
}

TEST_CASE("jobs whose states differ: the keys are named, and a changed rate can be accepted") {
  const Job job = parse_job(kGood, ".").value();
  Job other = job;
  CHECK(state_differences(job, other).empty());
  other.steps += 1;
  other.elastic.lease_ms += 1;
  other.optimizer.schedule_steps = job.steps;
  CHECK(state_differences(job, other).empty());
  other.optimizer.peak_rate = 2e-3;
  other.seed = 7;
  CHECK(state_differences(job, other) ==
        std::vector<std::string>{"[job].seed is 1 and 7",
                                 "[optimizer].peak_rate is 0.001 and 0.002"});
  CHECK(!may_go_on_from(other, state_hash(job)));
  other.checkpoint = {.dir = "/somewhere", .every = 10, .accepts = state_hash(job)};
  CHECK(may_go_on_from(other, state_hash(job)));
  CHECK(may_go_on_from(other, state_hash(other)));
  const Job again = parse_job(format_job(other), "/").value();
  CHECK(again == other);
  CHECK(job_hash(again) == job_hash(other));
}

TEST_CASE("which keys make two jobs different is named, and nothing that does not") {
  const Job job = parse_job(kGood, ".").value();
  Job other = job;
  other.name = "other";
  other.data.path = "/elsewhere";
  other.elastic.lease_ms = 77;
  CHECK(job_differences(job, other).empty());
  other.seed = job.seed + 1;
  other.optimizer.peak_rate = 0.5;
  const std::string differences = job_differences(job, other);
  CHECK(differences.find("job.seed is " + std::to_string(job.seed) + " here and " +
                         std::to_string(other.seed) + " there") != std::string::npos);
  CHECK(differences.find("optimizer.peak_rate is ") != std::string::npos);
  CHECK(differences.find("0.5 there") != std::string::npos);
  CHECK(differences.find("lease") == std::string::npos);
  other = job;
  other.optimizer = {.kind = OptimizerKind::kSgd};
  CHECK(job_differences(job, other).find("not set") != std::string::npos);
}

}  // namespace starling
