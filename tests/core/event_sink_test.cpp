// Goal: a sink, as metrics are, is one file and one line, and has each written event once.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/formats/job_file.h"
#include "core/observe/events.h"
#include "core/observe/loss_curve.h"
#include "core/observe/metrics.h"
#include "tests/core/observe_helpers.h"

namespace starling {
namespace {

event::StepPassed step_with(Version version, double loss) {
  return {{version, loss, 1, 20, false, 7}, kEpoch, 2, 1.5};
}

// The lines of the metrics that are named so.
std::string metric_lines(const Metrics& metrics, std::initializer_list<std::string> names) {
  std::istringstream in(metrics.text(MetricsFormat::kPrometheus, 0));
  std::string found;
  for (std::string line; std::getline(in, line);)
    for (const std::string& name : names)
      if (line.starts_with(name)) found += line + "\n";
  return found;
}

}  // namespace

TEST_CASE("sinks: each event once, as the file has them, also if members tell it twice") {
  const ObserveFolder folder("sinks");
  const auto writer = EventWriter::open(folder.path()).value();
  const Metrics& metrics = writer->add(std::make_unique<Metrics>(Job()));
  REQUIRE(writer->start(start_of(load_job("examples/mlp/digits.toml").value())));
  for (const Version version : {Version{0}, Version{0}, Version{1}, Version{0}})
    REQUIRE(writer->write(step_with(version, 4.0 - 0.5 * static_cast<double>(version))));
  REQUIRE(writer->write(event::Done{2, {1, 2}, 3.5}));
  REQUIRE(writer->write(event::Warning{"after the end"}));
  CHECK(metric_lines(metrics,
                     {"starling_steps_total", "starling_loss", "starling_tokens",
                      "starling_workers", "starling_warnings", "starling_state{state=\"done\"}"}) ==
        "starling_steps_total 2\n"
        "starling_tokens_total 40\n"
        "starling_loss 3.5\n"
        "starling_workers 2\n"
        "starling_warnings_total 0\n"
        "starling_state{state=\"done\"} 1\n");
}

TEST_CASE("sinks: what a file that is gone on with has already is not told again") {
  const ObserveFolder folder("sinks");
  const Job job = load_job("examples/mlp/digits.toml").value();
  event::Started started = start_of(job);
  started.coordinator = "coordinator-1";
  const EventWriter::Owner owner{job_hash(job), job.name, "coordinator-1"};
  {
    const auto writer = EventWriter::open(folder.path(), owner).value();
    REQUIRE(writer->start(started));
    REQUIRE(writer->write(step_with(0, 4)));
  }
  const auto writer = EventWriter::open(folder.path(), owner).value();
  const Metrics& metrics = writer->add(std::make_unique<Metrics>(Job()));
  REQUIRE(writer->start(started));
  REQUIRE(writer->write(step_with(0, 4)));
  REQUIRE(writer->write(step_with(1, 3)));
  CHECK(metric_lines(metrics, {"starling_steps_total", "starling_loss", "starling_tokens"}) ==
        "starling_steps_total 1\n"
        "starling_tokens_total 20\n"
        "starling_loss 3\n");
}

TEST_CASE("curve: losses in order, and an epoch where it begins") {
  const ObserveFolder folder("sinks");
  std::filesystem::create_directories(folder.path());
  LossCurve curve;
  event::EpochFormed epoch;
  epoch.id = kEpoch;
  epoch.members.resize(1);
  curve.on(epoch);
  for (Version version = 0; version < 3; ++version) curve.on(step_with(version, 4));
  curve.on(step_with(1, 400));  // of a member that is late
  REQUIRE(curve.save(folder.path() + "/loss.svg", "job"));
  std::ifstream file(folder.path() + "/loss.svg");
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  const double norm = step_with(0, 4).record.norm;
  CHECK(svg == loss_svg({.title = "job",
                         .losses = {{0, 4}, {1, 4}, {2, 4}},
                         .norms = {{0, norm}, {1, norm}, {2, norm}},
                         .epochs = {{0, "3.2 fresh, 1 worker"}}}));
}

}  // namespace starling
