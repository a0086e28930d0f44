#include "core/observe/run_status.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace starling {
namespace {

using Json = nlohmann::json;

event::StepPassed step(Version version, double ms, double loss = 2.5) {
  event::StepPassed passed;
  passed.record.version = version;
  passed.record.loss = loss;
  passed.record.skipped = std::isnan(loss);
  passed.world = 2;
  passed.ms = ms;
  return passed;
}

event::EpochFormed epoch_of(std::vector<event::EpochMember> members) {
  event::EpochFormed epoch;
  epoch.id = {1, 4};
  epoch.kind = PlanKind::kForced;
  epoch.members = std::move(members);
  epoch.cause = "worker-2 was lost";
  epoch.detect_ms = 100;
  epoch.form_ms = 20;
  epoch.resume_ms = 80;
  return epoch;
}

event::WorkerChanged change(const std::string& name, WorkerChange what) {
  event::WorkerChanged changed;
  changed.name = name;
  changed.what = what;
  return changed;
}

RunStatus started() {
  event::Started start;
  start.name = "small";
  start.steps = 100;
  RunStatus status;
  status.take(start, 1000);
  return status;
}

std::string text_of(const RunStatus& status, double now) {
  const auto lines = status.lines(now);
  return std::accumulate(
      lines.begin(), lines.end(), std::string(),
      [](std::string all, const std::string& line) { return all + line + "\n"; });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("run status: a run that waits for workers says so, and for how long") {
  RunStatus status = started();
  status.take(event::Preparing{"worker-0", 7}, 1001);
  CHECK(text_of(status, 1005) ==
        "small: waiting, step 0 of 100 (0.0 %)\n  prepares    worker-0, since 0:04\n");
  CHECK(has(text_of(status, 1061), "(0.0 %), nothing told for 1:00\n"));
  // No event tells the end of a process that never joins.
  CHECK_FALSE(has(text_of(status, 1200), "prepares"));
  CHECK_FALSE(status.over());
}

TEST_CASE("run status: a run that trains says its members, its pace and what it has lost") {
  RunStatus status = started();
  for (const char* name : {"worker-0", "worker-1", "worker-2"})
    status.take(change(name, WorkerChange::kJoined), 1001);
  status.take(change("worker-2", WorkerChange::kLost), 1002);
  status.take(event::LeaderElected{2, 1, 0, 150}, 1002);
  status.take(epoch_of({{1, "worker-0", false, false}, {2, "worker-1", false, true}}), 1003);
  for (Version v = 0; v < 10; ++v) status.take(step(v, 500), 1003 + 0.5 * static_cast<double>(v));
  status.take(event::CheckpointWritten{8, "x"}, 1008);
  status.take(event::Exposed{{1, 4}, 12, 2, 3}, 1008);
  const std::string text = text_of(status, 1010);
  for (const char* part : {"small: training, step 10 of 100 (10.0 %), loss 2.5000, 2 workers, "
                           "500.0 ms a step, 0:45 left\n",
                           "\n  leader      coordinator-1, term 2\n",
                           "\n  epoch       1.4 forced, 2 workers (worker-2 was lost), 0:07 ago\n",
                           "\n  rank 0      worker-0\n", "\n  rank 1      worker-1  leaves\n",
                           "\n  copies      12 segments with fewer than 3, the fewest 2\n",
                           "\n  checkpoint  step 8, 0:02 ago\n",
                           "\n  so far      1 worker lost, 0 left, 3 joined; pauses 0.2 s in all; "
                           "50.0 % of 0:10 in steps\n"})
    CHECK_MESSAGE(has(text, part), text);

  const Json json = Json::parse(status.json(1010));
  CHECK(json["state"] == "training");
  CHECK(json["step"] == 10);
  CHECK(json["seconds_left"] == 45.0);
  CHECK(json["epoch"]["members"][1] ==
        Json{{"rank", 1}, {"name", "worker-1"}, {"id", 2}, {"leaves", true}});
  CHECK(json["leader"] == Json{{"coordinator", 1}, {"term", 2}});
  CHECK(json["workers"] == Json{{"joined", 3}, {"left", 0}, {"lost", 1}, {"fenced", 0}});
  CHECK(json["pause_seconds"]["detect"] == 0.1);
  CHECK(json["effective_time_ratio"] == 0.5);
  CHECK(json["checkpoint"] == Json{{"step", 8}, {"seconds", 2.0}});
  CHECK_FALSE(json.contains("doubted_from_step"));
}

TEST_CASE("run status: an end is said with its reason, and time stands still after it") {
  RunStatus done = started(), failed = started(), ended = started();
  for (RunStatus* status : {&done, &failed, &ended}) {
    status->take(epoch_of({{1, "worker-0", false, false}}), 1001);
    status->take(step(99, 2000), 1004);
  }
  done.take(event::Done{100, Digest{1, 2}, 2.5}, 1004);
  CHECK(has(text_of(done, 9999), "small: done, step 100 of 100 (100.0 %), loss 2.5000, digest "));
  CHECK(has(text_of(done, 9999), "50.0 % of 0:04 in steps"));
  CHECK(Json::parse(done.json(9999))["effective_time_ratio"] == 0.5);
  CHECK_FALSE(has(text_of(done, 9999), "rank"));
  failed.take(event::Failed{4, "all copies are lost"}, 1004);
  CHECK(has(text_of(failed, 9999),
            "small: failed, step 100 of 100 (100.0 %), loss 2.5000: all copies are lost\n"));
  event::Ended end;
  end.reason = "ended by SIGTERM";
  ended.take(end, 1004);
  CHECK(Json::parse(ended.json(9999))["reason"] == "ended by SIGTERM");
  for (const RunStatus* status : {&done, &failed, &ended}) CHECK(status->over());
}

TEST_CASE(
    "run status: what happened before a coordinator began again counts, and its times are not "
    "known") {
  StatusSink sink;
  event::Started start;
  start.name = "small";
  start.steps = 100;
  sink.remember(start);
  sink.remember(change("worker-0", WorkerChange::kJoined));
  sink.remember(epoch_of({{1, "worker-0", false, false}}));
  sink.remember(step(3, 1e9));
  sink.remember(event::CheckpointWritten{3, "x"});
  sink.on(event::Continued{});
  const RunStatus status = sink.now();
  const std::string text = text_of(status, status.last_at() + 2);
  CHECK(has(text, "step 4 of 100"));
  CHECK(has(text, "\n  checkpoint  step 3\n"));
  CHECK(has(text, "1 joined; pauses 0.2 s in all; 0.0 % of 0:02 in steps"));
  event::EpochFormed of_another;
  sink.on(of_another);
  CHECK(has(text_of(sink.now(), status.last_at() + 2), "1 joined; 0.0 % of 0:02 in steps"));
  CHECK(Json::parse(status.json(status.last_at()))["epoch"]["seconds"].is_null());
}

TEST_CASE("run status: no number that JSON does not have, and texts of any bytes") {
  RunStatus status = started();
  status.take(step(0, 1, std::numeric_limits<double>::quiet_NaN()), 1001);
  status.take(event::Warning{"a \"b\" \xff\n"}, 1002);
  const Json json = Json::parse(status.json(1003));
  CHECK(json["loss"].is_null());
  CHECK(json["skipped_steps"] == 1);
  CHECK(json["warnings"] == 1);
  CHECK(status.json(1003).find('\n') == std::string::npos);
  CHECK(status.lines(1003).back().find('\n') == std::string::npos);
}

TEST_CASE(
    "run status: every line of recorded events is taken, and a line of something else is an "
    "error") {
  std::ifstream file("tests/core/event_lines.jsonl");
  RunStatus status;
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const std::string timed = R"({"t":1.5,"time":"2026-03-01T12:00:00.000125Z",)" + line.substr(1);
    const auto taken = status.take_line(timed);
    CHECK_MESSAGE(taken, line);
  }
  CHECK(lines > 20);
  CHECK_FALSE(status.json(status.last_at()).empty());
  CHECK_FALSE(status.take_line("{\"a\":1}"));
  CHECK_FALSE(status.take_line("text"));
}

}  // namespace
}  // namespace starling
