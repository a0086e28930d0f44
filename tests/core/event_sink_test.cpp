// Goal: a sink, say of metrics, is one file and one line, and has each written event once.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/observe/events.h"
#include "core/observe/loss_curve.h"
#include "tests/core/observe_helpers.h"

namespace starling {
namespace {

struct Folder : ObserveFolder {
  Folder() : ObserveFolder("sinks") {}
};

constexpr EpochId kEpoch{3, 2};

event::StepPassed step_of(Version version, double loss) {
  return {{version, loss, 1, 20, false, 7}, kEpoch, 2, 1.5};
}

// A whole sink: gauges and counters as Prometheus reads them.
class Prometheus : public EventSink {
 public:
  void on(const Event& event) override {
    values_["starling_events_total{kind=\"" + std::string(kind_of(event)) + "\"}"] += 1;
    const auto* step = std::get_if<event::StepPassed>(&event);
    if (step == nullptr) return;
    values_["starling_loss"] = step->record.loss;
    values_["starling_tokens_total"] += static_cast<double>(step->record.tokens);
    values_["starling_workers"] = step->world;
  }
  std::string text() const {
    std::ostringstream out;
    for (const auto& [name, value] : values_) out << name << " " << value << "\n";
    return out.str();
  }

 private:
  std::map<std::string, double> values_;
};

}  // namespace

TEST_CASE("sinks: each event once, as the file has them, also if members tell it twice") {
  const Folder folder;
  const auto writer = EventWriter::open(folder.path()).value();
  const Prometheus& metrics = writer->add(std::make_unique<Prometheus>());
  REQUIRE(writer->start(start_of(load_job("examples/mlp/digits.toml").value())));
  for (const Version version : {Version{0}, Version{0}, Version{1}, Version{0}})
    REQUIRE(writer->write(step_of(version, 4.0 - 0.5 * static_cast<double>(version))));
  REQUIRE(writer->write(event::Done{2, {1, 2}, 3.5}));
  REQUIRE(writer->write(event::Warning{"after the end"}));
  CHECK(metrics.text() ==
        "starling_events_total{kind=\"done\"} 1\n"
        "starling_events_total{kind=\"start\"} 1\n"
        "starling_events_total{kind=\"step\"} 2\n"
        "starling_loss 3.5\n"
        "starling_tokens_total 40\n"
        "starling_workers 2\n");
}

TEST_CASE("sinks: what a file that is gone on with has already is not told again") {
  const Folder folder;
  const Job job = load_job("examples/mlp/digits.toml").value();
  event::Started started = start_of(job);
  started.coordinator = "coordinator-1";
  const EventWriter::Owner owner{job_hash(job), job.name, "coordinator-1"};
  {
    const auto writer = EventWriter::open(folder.path(), owner).value();
    REQUIRE(writer->start(started));
    REQUIRE(writer->write(step_of(0, 4)));
  }
  const auto writer = EventWriter::open(folder.path(), owner).value();
  const Prometheus& metrics = writer->add(std::make_unique<Prometheus>());
  REQUIRE(writer->start(started));
  REQUIRE(writer->write(step_of(0, 4)));
  REQUIRE(writer->write(step_of(1, 3)));
  CHECK(metrics.text() ==
        "starling_events_total{kind=\"continued\"} 1\n"
        "starling_events_total{kind=\"step\"} 1\n"
        "starling_loss 3\n"
        "starling_tokens_total 20\n"
        "starling_workers 2\n");
}

TEST_CASE("curve: losses in order, and an epoch where it begins") {
  const Folder folder;
  std::filesystem::create_directories(folder.path());
  LossCurve curve;
  event::EpochFormed epoch;
  epoch.id = kEpoch;
  epoch.members.resize(1);
  curve.on(epoch);
  for (Version version = 0; version < 3; ++version) curve.on(step_of(version, 4));
  curve.on(step_of(1, 400));  // of a member that is late
  REQUIRE(curve.save(folder.path() + "/loss.svg", "job"));
  std::ifstream file(folder.path() + "/loss.svg");
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  CHECK(svg == loss_svg("job", std::vector<LossPoint>{{0, 4}, {1, 4}, {2, 4}},
                        std::vector<EpochMark>{{0, "3.2 fresh, 1 worker"}}));
}

}  // namespace starling
