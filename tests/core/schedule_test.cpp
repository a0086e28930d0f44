// Schedules: each beside its formula, what job files say of them, and where they end.

#include "core/job/schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/job/rate_change.h"
#include "tests/core/job_text.h"

namespace starling {
namespace {

std::string with_schedule(const std::string& keys) {
  return replaced(kGood, "warmup_steps = 10\n", keys + "\n");
}

OptimizerSpec read(const std::string& keys) {
  const auto job = parse_job(with_schedule(keys), ".");
  REQUIRE_MESSAGE(job, job.error().text());
  CHECK(parse_job(format_job(job.value()), "/").value() == job.value());
  return job.value().optimizer;
}

// The formulae of schedule.h by the mathematical library, for kGood's 60 steps and peak of 1e-3.
TEST_CASE("schedules: the rates are those of the formulae") {
  constexpr double S = 60;
  struct Case {
    const char* keys;
    double (*formula)(double k);
  };
  const Case cases[] = {
      {"schedule = \"constant\"\nwarmup_steps = 4",
       [](double k) { return k < 4 ? (k + 1) / 4 : 1; }},
      {"schedule = \"linear\"\nfloor = 0.2",
       [](double k) { return 0.2 + 0.8 * (1 - (k + 1) / S); }},
      {"schedule = \"linear\"\nfloor = 0.0\nwarmup_steps = 10",
       [](double k) { return k < 10 ? (k + 1) / 10 : 1 - (k - 9) / 50; }},
      {"schedule = \"cosine\"\nfloor = 0.0",
       [](double k) { return (1 + std::cos(M_PI * (k + 1) / S)) / 2; }},
      {"schedule = \"step\"\nstep_every = 7\nwarmup_steps = 2",
       [](double k) { return k < 2 ? (k + 1) / 2 : std::pow(0.1, std::floor((k - 2) / 7)); }},
      {"schedule = \"step\"\nstep_every = 1\nstep_factor = 0.9",
       [](double k) { return std::pow(0.9, k); }},
      {"schedule = \"inverse-square-root\"\nwarmup_steps = 9",
       [](double k) { return k < 9 ? (k + 1) / 9 : 3 / std::sqrt(k + 1); }},
      {"schedule = \"inverse-square-root\"", [](double k) { return 1 / std::sqrt(k + 1); }},
      {"schedule = \"warm-up-stable-decay\"\nwarmup_steps = 5\ndecay_steps = 20\nfloor = 0.0",
       [](double k) { return k < 5    ? (k + 1) / 5
                             : k < 40 ? 1
                                      : 1 - (k - 39) / 20; }},
      {"schedule = \"one-cycle\"\nwarmup_steps = 18\nfloor = 0.001",
       [](double k) {
         return k < 18 ? 0.04 + 0.96 * (1 - std::cos(M_PI * k / 17)) / 2
                       : 0.001 + 0.999 * (1 + std::cos(M_PI * (k - 17) / 42)) / 2;
       }},
  };
  for (const auto& [keys, formula] : cases) {
    CAPTURE(keys);
    const OptimizerSpec o = read(keys);
    for (std::uint64_t k = 0; k < 60; ++k) {
      CAPTURE(k);
      CHECK(std::abs(learning_rate(o, k, 60) - 1e-3 * formula(static_cast<double>(k))) < 2e-18);
    }
  }
}

TEST_CASE("schedules: the last step and all after it have the floor") {
  for (const std::string keys :
       {"schedule = \"linear\"", "schedule = \"warm-up-stable-decay\"\ndecay_steps = 60",
        "schedule = \"one-cycle\"\nwarmup_steps = 1", "schedule = \"cosine\""}) {
    CAPTURE(keys);
    const OptimizerSpec o = read(keys);
    CHECK(learning_rate(o, 59, 60) == 1e-3 * 0.1);
    CHECK(learning_rate(o, 1000, 60) == 1e-3 * 0.1);
  }
}

TEST_CASE("schedules: one that is named as what goes without saying is the same job") {
  const auto with = [](const std::string& keys) {
    return parse_job(with_schedule(keys), ".").value();
  };
  CHECK(with("schedule = \"cosine\"") == with(""));
  CHECK(job_hash(with("schedule = \"linear\"")) != job_hash(with("")));
  CHECK(state_hash(with("schedule = \"linear\"")) != state_hash(with("")));
}

TEST_CASE("schedules: what has no length can train longer as the same state") {
  const auto longer = [](const std::string& keys) {
    Job job = parse_job(with_schedule(keys), ".").value();
    const auto before = state_hash(job);
    job.steps = 70;
    return state_hash(job) == before;
  };
  CHECK(longer("schedule = \"constant\""));
  CHECK(longer("schedule = \"step\"\nstep_every = 5"));
  CHECK(longer("schedule = \"inverse-square-root\""));
  CHECK_FALSE(longer("schedule = \"linear\""));
  CHECK_FALSE(longer(""));
}

TEST_CASE("schedules: a sampled one is told step by step, and lasts as long as it was sampled") {
  std::string all = "1.0, 0.5, 0.3333333333333333";
  for (int k = 3; k < 60; ++k) all += ", 0.25";
  const OptimizerSpec o = read("schedule = \"sampled\"\nfractions = [" + all + "]");
  CHECK(learning_rate(o, 0, 60) == 1e-3);
  CHECK(learning_rate(o, 2, 60) == 1e-3 * 0.3333333333333333);
  CHECK(learning_rate(o, 59, 60) == 1e-3 * 0.25);
  const std::string text = with_schedule("schedule = \"sampled\"\nfractions = [" + all + "]");
  Job job = parse_job(text, ".").value();
  Job other = job;
  other.optimizer.fractions[1] = 0.25;
  CHECK(state_hash(other) != state_hash(job));
  const std::string difference = state_differences(job, other).at(0);
  CHECK(difference.size() < 500);
  job.steps = 61;
  CHECK(validate(job).error().text().find(
            "the schedule was sampled for 60 steps, the job has 61") == 0);
}

TEST_CASE("schedules: another peak rate is as if the job had it") {
  OptimizerSpec o = read("schedule = \"linear\"\nwarmup_steps = 7");
  OptimizerSpec other = o;
  other.peak_rate = 0.3;
  for (std::uint64_t k = 0; k < 60; ++k) {
    CHECK(learning_rate(o, k, 60, 0.3) == learning_rate(other, k, 60));
    CHECK(learning_rate(o, k, 60, 0) == learning_rate(o, k, 60));
  }
  const std::vector<RateChange> changes{{5, 0.5}, {9, 0.25}, {9, 0.125}};
  CHECK(changed_rate(changes, 4) == 0);
  CHECK(changed_rate(changes, 5) == 0.5);
  CHECK(changed_rate(changes, 9) == 0.125);
  CHECK(changed_rate({}, 9) == 0);
}

TEST_CASE("schedules: what is wrong is named") {
  const std::pair<const char*, const char*> cases[] = {
      {"schedule = \"step\"", "step_every is missing"},
      {"schedule = \"step\"\nstep_every = 0", "step_every must be an integer from 1"},
      {"schedule = \"step\"\nstep_every = 5\nstep_factor = 1.5",
       "step_factor must be a number above"},
      {"step_every = 5", "step_every does not apply to the schedule \"cosine\", only to \"step\""},
      {"schedule = \"linear\"\nfractions = [1.0]",
       "fractions does not apply to the schedule \"linear\""},
      {"schedule = \"warm-up-stable-decay\"", "decay_steps is missing"},
      {"schedule = \"warm-up-stable-decay\"\ndecay_steps = 55\nwarmup_steps = 10",
       "decay_steps must be at most the 50 steps after the warm-up, is 55"},
      {"schedule = \"one-cycle\"",
       "warmup_steps must be at least 1 for the schedule \"one-cycle\""},
      {"schedule = \"one-cycle\"\nwarmup_steps = 5\nstart = 2.0",
       "start must be a number from 0.0"},
      {"schedule = \"sampled\"", "fractions is missing"},
      {"schedule = \"sampled\"\nfractions = [1.5]", "fractions must be numbers from 0.0 to 1.0"},
      {"schedule = \"sampled\"\nfractions = [1.0]",
       "the schedule was sampled for 1 steps, the job has"},
  };
  for (const auto& [keys, text] : cases) {
    CAPTURE(keys);
    const std::string error = error_of(with_schedule(keys));
    CHECK_MESSAGE(error.find(text) != std::string::npos, error);
  }
  OptimizerSpec o;
  o.schedule = "halvin";
  CHECK(check_schedule(o).error().text().find("this program has no schedule \"halvin\", it has ") ==
        0);
}

// An application's schedule was there before a built-in one got its name.
TEST_CASE("schedules: an application's takes the place of one of the same name") {
  REQUIRE(Named<Schedule>::add(
      "inverse-square-root",
      {[](const OptimizerSpec&, std::uint64_t step, std::uint64_t) { return double(step); }}));
  CHECK(learning_rate(read("schedule = \"inverse-square-root\""), 7, 60) == 7);
}

}  // namespace
}  // namespace starling
