// [local] and [numbers] of a job file.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "core/job/job.h"
#include "tests/core/job_text.h"

namespace starling {

TEST_CASE("[local]: off without the section, and checked with it") {
  const auto section = [](const std::string& keys) { return kGood + "[local]\n" + keys; };
  const std::string keys = "steps = 2\nkind = \"adamw\"\npeak_rate = 0.002\nwarmup_steps = 7\n";
  CHECK_FALSE(parse_job(kGood, ".").value().local.on());
  const auto read = parse_job(section(keys), ".");
  REQUIRE_MESSAGE(read, read.error().text());
  const Job& job = read.value();
  CHECK(job.local.steps == 2);
  CHECK(job.local.optimizer.warmup_steps == 7);
  CHECK(job.local.optimizer.clip == 1.0);
  CHECK(pass_sequences(job) == job.micro_batch_sequences / 2);
  CHECK(local_steps(job) == 2 * job.steps);
  CHECK(parse_job(format_job(job), "/").value() == job);
  // What local steps changed is no gradient: unless told, the step takes it as it is, at one rate.
  const std::string optimizer = kGood.substr(kGood.find("[optimizer]"));
  CHECK(optimizer.find("clip") == std::string::npos);
  CHECK(job.optimizer.clip == 0);
  CHECK(parse_job(kGood, ".").value().optimizer.clip == 1);

  Job other = job;
  other.local.steps = 1;
  CHECK(state_hash(other) != state_hash(job));
  other = job;
  other.local.optimizer.beta2 = 0.9;
  CHECK(state_hash(other) != state_hash(job));
  other = job;
  other.steps *= 2;  // the local schedule's length is the job's
  other.optimizer.schedule_steps = job.steps;
  CHECK(state_hash(other) != state_hash(job));
  other.local.optimizer.schedule_steps = local_steps(job);
  CHECK(state_hash(other) == state_hash(job));

  const std::pair<std::string, const char*> wrong[] = {
      {"kind = \"adamw\"\npeak_rate = 0.002\n", "steps is missing; [local].steps"},
      {"steps = 0\nkind = \"adamw\"\n", "steps must be an integer from 1 to 4096"},
      {"steps = 2\npeak_rate = 0.002\n", "kind is missing; [local].kind"},
      {"steps = 3\nkind = \"adamw\"\npeak_rate = 0.002\n",
       "steps must divide the sequences of a micro-batch, 4 in [job], is 3; [local].steps"},
      {keys + "momentum = 0.9\n", "momentum does not apply to kind \"adamw\"; [local].momentum"},
      {keys + "schedule_steps = 5\n", "warmup_steps must be below the schedule's 5 local steps"},
      {keys + "groups = [{ tensors = [\"*\"], statistics = true }]\n",
       "statistics are those that groups of [optimizer] name; [local].groups"},
  };
  for (const auto& [text, why] : wrong) {
    const std::string error = error_of(section(text));
    CHECK_MESSAGE(error.find(why) != std::string::npos, error);
  }
}

TEST_CASE("[numbers]: off without the section, and checked with it") {
  const auto section = [](const std::string& keys) { return kGood + "[numbers]\n" + keys; };
  CHECK(parse_job(kGood, ".").value().numbers == NumbersSpec{});
  const auto read = parse_job(section("grid_bits = 8\nrounding = \"stochastic\"\n"), ".");
  REQUIRE_MESSAGE(read, read.error().text());
  const Job& job = read.value();
  CHECK(job.numbers == NumbersSpec{8, GridRounding::kStochastic});
  CHECK(parse_job(format_job(job), "/").value() == job);
  CHECK(parse_job(section("grid_bits = 8\n"), ".").value().numbers == job.numbers);
  CHECK(parse_job(section("grid_bits = 20\n"), ".").value().numbers ==
        NumbersSpec{20, GridRounding::kNearest});
  Job other = job;
  other.numbers.rounding = GridRounding::kNearest;
  CHECK(state_hash(other) != state_hash(job));
  const std::pair<const char*, const char*> wrong[] = {
      {"rounding = \"nearest\"\n", "grid_bits is missing; [numbers].grid_bits"},
      {"grid_bits = 3\n", "grid_bits must be an integer from 4 to 24"},
      {"grid_bits = 8\nrounding = \"up\"\n", "rounding must be one of \"nearest\", \"stochastic\""},
      {"grid_bits = 16\nrounding = \"stochastic\"\n",
       "rounding is \"stochastic\" with grid_bits of at most 15, of which are 16; "
       "[numbers].rounding"},
  };
  for (const auto& [keys, why] : wrong) {
    const std::string error = error_of(section(keys));
    CHECK_MESSAGE(error.find(why) != std::string::npos, error);
  }
}

}  // namespace starling
