#include "core/observe/metrics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace starling {
namespace {

Job job_of_ten_steps() {
  Job job;
  job.name = "a \"b\"\\\n";
  job.steps = 10;
  job.micro_batches = 4;
  job.micro_batch_sequences = 2;
  job.checkpoint = {.dir = "/c", .every = 5};
  return job;
}

event::StepPassed metrics_step(Version version, double ms, double loss = 2.5) {
  event::StepPassed passed;
  passed.record.version = version;
  passed.record.loss = loss;
  passed.record.skipped = std::isnan(loss);
  passed.record.tokens = 100;
  passed.world = 3;
  passed.ms = ms;
  return passed;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

std::string text_of(const Metrics& metrics, MetricsFormat format = MetricsFormat::kPrometheus) {
  return metrics.text(format, 0);
}

TEST_CASE("metrics: a run that has told nothing has no step, loss or checkpoint") {
  const Metrics metrics(job_of_ten_steps());
  const std::string text = text_of(metrics);
  CHECK(has_line(text, "starling_steps_wanted 10"));
  CHECK(has_line(text, "starling_state{state=\"running\"} 1"));
  for (const char* absent : {"starling_step ", "starling_loss", "starling_checkpoint_timestamp",
                             "starling_effective_time_ratio", "starling_learning_rate"})
    CHECK_MESSAGE(text.find(std::string("\n") + absent) == std::string::npos, absent);
}

TEST_CASE("metrics: steps are counted, timed and summed") {
  Metrics metrics(job_of_ten_steps());
  event::Started start;
  start.from = 5;
  metrics.on(start);
  CHECK(has_line(text_of(metrics), "starling_step 5"));
  CHECK(has_line(text_of(metrics), "starling_checkpoint_step 5"));
  metrics.on(metrics_step(5, 1));
  metrics.on(metrics_step(6, 20));
  metrics.on(metrics_step(7, 1e6, std::numeric_limits<double>::quiet_NaN()));
  const std::string text = text_of(metrics);
  for (const char* line :
       {"starling_step 8", "starling_steps_total 3", "starling_skipped_steps_total 1",
        "starling_samples_total 24", "starling_tokens_total 300", "starling_loss NaN",
        "starling_workers 3", "starling_step_seconds_bucket{le=\"0.001\"} 1",
        "starling_step_seconds_bucket{le=\"0.03\"} 2", "starling_step_seconds_bucket{le=\"100\"} 2",
        "starling_step_seconds_bucket{le=\"+Inf\"} 3", "starling_step_seconds_count 3",
        "starling_step_seconds_sum 1000.021"})
    CHECK_MESSAGE(has_line(text, line), line);
  CHECK(metrics.text(MetricsFormat::kPrometheus, 1e12).find("starling_effective_time_ratio 1.") !=
        std::string::npos);
}

TEST_CASE("metrics: changes are counted by kind") {
  Metrics metrics(job_of_ten_steps());
  for (const auto what : {WorkerChange::kJoined, WorkerChange::kJoined, WorkerChange::kLost}) {
    event::WorkerChanged change;
    change.what = what;
    metrics.on(change);
  }
  event::EpochFormed epoch;
  epoch.kind = PlanKind::kForced;
  epoch.members.resize(2);
  epoch.detect_ms = 1500;
  metrics.on(epoch);
  metrics.on(event::Exposed{{}, 7, 1, 3});
  metrics.on(event::CheckpointWritten{10, "/c/step-000000010"});
  metrics.on(event::Done{});
  const std::string text = text_of(metrics);
  for (const char* line :
       {"starling_worker_changes_total{change=\"joined\"} 2",
        "starling_worker_changes_total{change=\"lost\"} 1",
        "starling_worker_changes_total{change=\"left\"} 0",
        "starling_epochs_total{kind=\"forced\"} 1",
        "starling_pause_seconds_total{part=\"detect\"} 1.5", "starling_workers 2",
        "starling_exposed_segments 7", "starling_copies_min 1", "starling_copies_wanted 3",
        "starling_checkpoint_step 10", "starling_state{state=\"done\"} 1",
        "starling_state{state=\"running\"} 0"})
    CHECK_MESSAGE(has_line(text, line), line);
}

TEST_CASE("metrics: OpenMetrics names a counter without its ending, and has an end") {
  Metrics metrics(job_of_ten_steps());
  metrics.on(metrics_step(0, 1));
  const std::string text = text_of(metrics, MetricsFormat::kOpenMetrics);
  CHECK(has_line(text, "# TYPE starling_steps counter"));
  CHECK(has_line(text, "starling_steps_total 1"));
  CHECK(text.ends_with("\n# EOF\n"));
  CHECK(has_line(text_of(metrics), "# TYPE starling_steps_total counter"));
}

TEST_CASE("metrics: texts of a job cannot end a label or a line") {
  const std::string text = text_of(Metrics(job_of_ten_steps()));
  CHECK(text.find("job=\"a \\\"b\\\"\\\\\\n\"} 1\n") != std::string::npos);
}

}  // namespace
}  // namespace starling
