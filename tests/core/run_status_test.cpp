#include "core/observe/run_status.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/core/has.h"

namespace starling {
namespace {

using Json = nlohmann::json;

event::StepPassed status_step(Version version, double ms, double loss = 2.5) {
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

RunStatus training_status() {
  RunStatus status = started();
  std::uint64_t id = 0;
  for (const char* name : {"worker-0", "worker-1", "worker-2"}) {
    event::WorkerChanged joined = change(name, WorkerChange::kJoined);
    joined.id = ++id;
    joined.pid = 70 + id;
    if (id == 1) joined.machine.first_gradient_ns = 250'000'000;
    status.take(joined, 1001);
  }
  event::WorkerChanged lost = change("worker-2", WorkerChange::kLost);
  lost.id = 3;
  status.take(lost, 1002);
  status.take(event::LeaderElected{2, 1, 0, 150}, 1002);
  status.take(epoch_of({{1, "worker-0", false, false}, {2, "worker-1", false, true}}), 1003);
  for (Version v = 0; v < 10; ++v)
    status.take(status_step(v, 500), 1003 + 0.5 * static_cast<double>(v));
  status.take(event::CheckpointWritten{8, "x"}, 1008);
  status.take(event::Exposed{{1, 4}, 12, 2, 3}, 1008);
  return status;
}

TEST_CASE("run status: a run that trains says its members, its pace and what it has lost") {
  RunStatus status = training_status();
  event::WorkerChanged lost = change("worker-0", WorkerChange::kLost);
  const std::string text = text_of(status, 1010);
  for (const char* part :
       {"small: training, step 10 of 100 (10.0 %), loss 2.5000, 2 workers, "
        "500.0 ms a step, 0:45 left\n",
        "\n  leader      coordinator-1, term 2\n",
        "\n  epoch       1.4 forced, 2 workers (worker-2 was lost), 0:07 ago\n",
        "\n  rank 0      worker-0, process 71\n", "\n  rank 1      worker-1, process 72, leaves\n",
        "\n  copies      12 segments with fewer than 3, the fewest 2\n",
        "\n  checkpoint  step 8, 0:02 ago\n",
        "\n  so far      1 worker lost, 0 left, 3 joined; pauses 0.0 s in all; "
        "50.0 % of 0:10 in steps\n"})
    CHECK_MESSAGE(has(text, part), text);

  // Where the others wait there is no epoch without it yet.
  lost.id = 1;
  status.take(lost, 1009);
  CHECK(has(text_of(status, 1010), "\n  rank 0      worker-0, gone\n"));
  event::EpochFormed without_it = epoch_of({{2, "worker-1", false, true}});
  without_it.id = {1, 5};
  status.take(without_it, 1009.5);
  CHECK_FALSE(has(text_of(status, 1010), "gone"));
}

TEST_CASE("run status: as JSON it has its members, what was lost and the time in steps") {
  const RunStatus status = training_status();
  const Json json = Json::parse(status.json(1010));
  CHECK(json["state"] == "training");
  CHECK(json["step"] == 10);
  CHECK(json["seconds_left"] == 45.0);
  CHECK(json["epoch"]["members"][1] == Json{{"rank", 1},
                                            {"name", "worker-1"},
                                            {"id", 2},
                                            {"pid", 72},
                                            {"role", "both"},
                                            {"leaves", true}});
  const Json& machine = json["epoch"]["members"][0]["machine"];
  CHECK(machine["first_gradient_seconds"] == 0.25);
  CHECK_FALSE(machine.contains("device"));
  CHECK(json["leader"] == Json{{"coordinator", 1}, {"term", 2}});
  CHECK(json["workers"] == Json{{"joined", 3}, {"left", 0}, {"lost", 1}, {"fenced", 0}});
  CHECK(json["pause_seconds"] == 0.0);
  CHECK(json["effective_time_ratio"] == 0.5);
  CHECK(json["checkpoint"] == Json{{"step", 8}, {"seconds", 2.0}});
  CHECK_FALSE(json.contains("doubted_from_step"));
}

TEST_CASE(
    "run status: a worker leaves from its notice on, and one that was fenced is not one that "
    "died") {
  RunStatus status = started();
  status.take(change("worker-0", WorkerChange::kJoined), 1001);
  status.take(epoch_of({{1, "worker-0", false, false}}), 1002);
  status.take(status_step(0, 1000), 1003);
  event::NoticeGiven notice;
  notice.name = "worker-0";
  status.take(notice, 1004);  // a hint: it stays
  CHECK(has(text_of(status, 1004), "\n  rank 0      worker-0\n"));
  notice.leave = true;
  status.take(notice, 1004);
  CHECK(has(text_of(status, 1004), "\n  rank 0      worker-0, leaves\n"));
  status.take(change("worker-0", WorkerChange::kFenced), 1005);
  CHECK(has(text_of(status, 1005), "0 workers lost, 1 fenced, 0 left, 1 joined"));
}

TEST_CASE("run status: of a run that tells nothing nobody knows how long it will take") {
  RunStatus status = started();
  status.take(epoch_of({{1, "worker-0", false, false}}), 1001);
  status.take(status_step(0, 1000), 1003);
  CHECK(Json::parse(status.json(1004))["seconds_left"] == 99.0);
  CHECK_FALSE(Json::parse(status.json(1020)).contains("seconds_left"));
  CHECK(has(text_of(status, 1020), "1 worker, no step for 0:17\n"));
}

TEST_CASE("run status: an end is said with its reason, and time stands still after it") {
  RunStatus done = started(), failed = started(), ended = started();
  for (RunStatus* status : {&done, &failed, &ended}) {
    status->take(epoch_of({{1, "worker-0", false, false}}), 1001);
    status->take(status_step(99, 2000), 1004);
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

TEST_CASE("run status: what a file of events has before a coordinator begins again counts") {
  const std::string path = "run-status-" + std::to_string(::getpid()) + ".jsonl";
  {
    std::ofstream file(path);
    file
        << R"({"t":1,"time":"2026-03-01T12:00:00.000000Z","ev":"worker","id":1,"what":"joined","name":"worker-0","pid":7,"phase":null,"reason":null})"
        << "\n"
        << R"({"t":2,"time":"2026-03-01T12:00:01.000000Z","ev":"checkpoint","version":3,"path":"x"})"
        << "\n{\"t\":3,\"ti";
  }
  StatusSink sink;
  sink.remember(path);
  std::remove(path.c_str());
  const RunStatus status = sink.now();
  CHECK(Json::parse(status.json(status.last_at() + 2))["checkpoint"] ==
        Json{{"step", 3}, {"seconds", 2.0}});
  CHECK(Json::parse(status.json(0))["joined"] ==
        Json::array({{{"name", "worker-0"}, {"id", 1}, {"pid", 7}}}));
  sink.on(event::CheckpointWritten{3, "x"});  // told again by the next leader: no newer for that
  CHECK(Json::parse(sink.now().json(status.last_at() + 2))["checkpoint"]["seconds"] == 2.0);
}

TEST_CASE(
    "run status: of a step with a pause in it the usual time is a step's, and the rest the pause") {
  RunStatus status = started();
  event::EpochFormed epoch = epoch_of({{1, "worker-0", false, false}});
  epoch.kind = PlanKind::kFresh;
  status.take(epoch, 1000);
  for (Version v = 0; v < 4; ++v)
    status.take(status_step(v, 500), 1000.5 + 0.5 * static_cast<double>(v));
  epoch.kind = PlanKind::kPrepared;  // for which nobody stops
  status.take(epoch, 1002);
  status.take(status_step(4, 600), 1002.6);
  CHECK(has(text_of(status, 1002.6), "pauses 0.0 s in all; 100.0 % of "));
  epoch.kind = PlanKind::kForced;
  status.take(epoch, 1004);
  status.take(status_step(5, 2410), 1005);
  CHECK(has(text_of(status, 1005), "pauses 1.9 s in all; 62.2 % of 0:05 in steps"));
  status.take(status_step(6, std::numeric_limits<double>::quiet_NaN()), 1005.2);
  status.take(status_step(7, -3000), 1005.2);
  CHECK(has(text_of(status, 1005.2), "pauses 1.9 s in all"));
}

TEST_CASE("run status: steps that are done again after a restart are shown as they are done") {
  RunStatus status = started();
  status.take(epoch_of({{1, "worker-0", false, false}}), 1001);
  for (Version v = 0; v < 10; ++v) status.take(status_step(v, 500), 1002);
  status.take(event::CheckpointWritten{8, "x"}, 1002);
  status.take(event::Restarted{4, {1, 4}, "all copies are lost"}, 1060);
  CHECK(
      has(text_of(status, 1061), "\n  checkpoint  step 4\n"));  // that of step 8 could not be read
  CHECK(has(text_of(status, 1061), "small: training, step 4 of 100 (4.0 %) again\n"));
  event::LedgerPassed ledger;
  ledger.version = 7;
  status.take(ledger, 1062);
  CHECK(has(text_of(status, 1063), "step 8 of 100 (8.0 %) again\n"));
  CHECK(Json::parse(status.json(1063))["again"] == true);
  status.take(status_step(10, 500), 1070);
  CHECK(has(text_of(status, 1070), "step 11 of 100 (11.0 %), loss 2.5000"));
}

TEST_CASE("run status: a run whose workers died shows no pace, whoever joins meanwhile") {
  RunStatus status = started();
  status.take(epoch_of({{1, "worker-0", false, false}}), 1001);
  status.take(status_step(0, 1000), 1003);
  event::WorkerChanged joined = change("worker-9", WorkerChange::kJoined);
  joined.id = 9;
  joined.pid = 99;
  status.take(joined, 1018);
  const std::string text = text_of(status, 1020);
  CHECK(has(text, "loss 2.5000, 1 worker, no step for 0:17\n"));
  CHECK(has(text, "\n  joined      worker-9, process 99, in no epoch yet\n"));
}

TEST_CASE("run status: no number that JSON does not have, and texts of any bytes") {
  RunStatus status = started();
  status.take(status_step(0, 1, std::numeric_limits<double>::quiet_NaN()), 1001);
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
