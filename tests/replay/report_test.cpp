#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/judge/stories.h"
#include "tools/replay/replay_report.h"

namespace starling::replay {
namespace {

using judge::Tale;

// Worker 3 is killed; two micro-batches a step, five steps, 0.1 s each.
ReplayReport report_of(Tale tale) {
  ReplayReport report;
  report.run.job = "tale";
  report.run.repeat = "starling replay job.toml --trace \"t.csv\"";
  report.run.evidence.loud = tale.story();
  report.run.evidence.quiet = judge::quiet_story();
  report.run.evidence.reference_digest = judge::kTaleDigest;
  report.run.evidence.deeds = {judge::deed(&chaos::faults::kKill, 1.25, 3)};
  report.trace = "t.csv";
  report.stretch = {0, 240, 0.6, std::nullopt};  // 0.4 s of the replay
  report.nodes = {{0, 3}, {0.25, 2}};
  report.workers_most = 3;
  report.before = {{2, 8}, {3, 8}};
  conclude(report);
  return report;
}

Tale good() {
  return judge::beginning()
      .steps(0, 3)
      .worker(1.26, 3, "lost")
      .epoch(1.30, "1.2", "1.1", "forced", 3, {1, 2})
      .steps(3, 5);
}

bool fails_for(const ReplayReport& report, const std::string& word) {
  const auto failed = failures(report);
  return std::any_of(failed.begin(), failed.end(),
                     [&](const std::string& text) { return text.find(word) != std::string::npos; });
}

}  // namespace

TEST_CASE("a replay that lost nothing, with the undisturbed digest, held") {
  const auto report = report_of(good().done());
  CHECK_MESSAGE(failures(report).empty(), summary(report));
  CHECK(report.ledgers.lost == 0);
  CHECK(report.ledgers.duplicated == 0);
  CHECK(report.ledgers.once == 10);
  // 3 workers for 0.25 s and 2 for 0.15 s could have done 8.4; four steps of two were committed.
  CHECK(report.goodput.value() == doctest::Approx(8 / 8.4));
}

// P2: what the ledgers say is counted anew.
TEST_CASE("a micro-batch that is missing or there twice is not held") {
  const struct {
    const char* rows;
    std::uint64_t lost, duplicated;
  } cases[] = {{"[0,1]", 1, 0},
               {"[1,2]", 1, 0},
               {"", 2, 0},
               {"[0,1],[0,2]", 1, 1},
               {"[0,1],[1,2],[1,1]", 0, 1}};
  for (const auto& c : cases) {
    CAPTURE(c.rows);
    const auto report =
        report_of(judge::beginning().steps(0, 4).step(1.4, 4).ledger(1.4, 4, c.rows).done());
    CHECK(report.ledgers.lost == c.lost);
    CHECK(report.ledgers.duplicated == c.duplicated);
    CHECK(fails_for(report, std::to_string(c.lost) + " micro-batches lost, " +
                                std::to_string(c.duplicated) + " duplicated"));
  }
}

TEST_CASE("a step without a ledger, or missing, is lost with all its micro-batches") {
  CHECK(report_of(judge::beginning().steps(0, 4).step(1.4, 4).done()).ledgers.lost == 2);
  CHECK(report_of(judge::beginning().steps(0, 3).steps(4, 5).done()).ledgers.lost == 2);
}

TEST_CASE("a step that has two ledgers is duplicated, unless a restart lies between") {
  Tale twice = judge::beginning().steps(0, 5).ledger(1.5, 4, "[0,2],[1,1]").done();
  CHECK(report_of(twice).ledgers.duplicated == 2);
  Tale again =
      judge::beginning().steps(0, 5).restart(1.45, 4, "1.1").ledger(1.5, 4, "[0,2],[1,1]").done();
  CHECK(report_of(again).ledgers.duplicated == 0);
}

TEST_CASE("another digest, or none, is not held") {
  CHECK(fails_for(report_of(good().done('e')), "digest"));
  CHECK(fails_for(report_of(good()), "digest"));
}

TEST_CASE("too little goodput is not held") {
  auto report = report_of(good().done());
  report.goodput_min = 0.95;
  CHECK(failures(report).empty());
  report.goodput_min = 0.96;
  CHECK(fails_for(report, "goodput 95.24 %, wanted 96.00 %"));
}

TEST_CASE("a job that was done before the trace was over is not held") {
  auto report = report_of(good().done());
  report.stretch.to_ms = 1000;
  conclude(report);
  CHECK(fails_for(report, "before the trace did"));
}

TEST_CASE("the report has every figure and stands alone") {
  auto report = report_of(good().done());
  const auto json = nlohmann::json::parse(report_json(report));
  CHECK(json["held"] == true);
  CHECK(json["goodput"].get<double>() == doctest::Approx(8 / 8.4));
  CHECK(json["lost"] == 0);
  CHECK(json["restarts"] == 0);
  CHECK(json["notice_s"].is_null());
  CHECK(json["run"]["faults"].size() == 1);
  const std::string html = report_html(report);
  for (const char* wanted : {"world size", "micro-b./s", "epochs", "95.24 %", "t.csv",
                             "unannounced", "worker-3", "&quot;t.csv&quot;"}) {
    CAPTURE(wanted);
    CHECK(html.find(wanted) != std::string::npos);
  }
  for (const char* outside : {"https://", "src=", "href=", "<script"})
    CHECK(html.find(outside) == std::string::npos);
}

}  // namespace starling::replay
