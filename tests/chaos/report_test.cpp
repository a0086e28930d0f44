#include "tools/chaos/report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/judge/stories.h"
#include "tools/chaos/report_html.h"
#include "tools/chaos/timeline.h"

namespace starling::chaos {
namespace {

Report small_report() {
  Report report;
  report.job = "a <job>";
  report.repeat = "starling chaos job.toml --plan \"plan.toml\"";
  report.evidence.loud = judge::beginning().steps(0, 5).done().story();
  report.evidence.quiet = judge::quiet_story();
  report.evidence.reference_digest = judge::kTaleDigest;
  report.evidence.deeds = {judge::deed(&faults::kKill, 1.25, 3), judge::Deed{}};
  report.evidence.leftovers = {"process 7: sleep"};
  report.verdicts = judge::verdicts_of(report.evidence);
  report.pauses = judge::pauses_of(report.evidence.loud, report.evidence.deeds);
  return report;
}

}  // namespace

TEST_CASE("report.json has every verdict, fault and pause") {
  const auto json = nlohmann::json::parse(report_json(small_report()));
  CHECK(json["verdicts"].size() == 9);
  CHECK(json["faults"].size() == 2);
  CHECK(json["faults"][0]["targets"][0]["name"] == "worker-3");
  CHECK(json["faults"][1]["outcome"] == "not reached");
  CHECK(json["pauses"].size() == 1);
  CHECK(json["held"] == false);
  CHECK(json["run"]["steps_committed"] == 5);
}

TEST_CASE("JUnit: what is broken is a failure with the command that repeats it") {
  const std::string xml = report_junit(small_report());
  CHECK(xml.find("tests=\"9\" failures=\"1\"") != std::string::npos);
  CHECK(
      xml.find("<failure message=\"process 7: sleep\">starling chaos job.toml --plan &quot;plan") !=
      std::string::npos);
  CHECK(xml.find("<skipped message=\"nobody tried\"/>") != std::string::npos);
  CHECK(xml.find("a &lt;job&gt;") != std::string::npos);
}

TEST_CASE("report.html stands alone and shows what was done to whom") {
  const std::string html = report_html(small_report());
  for (const char* outside : {"http://", "https://", "src=", "href=", "<script"}) {
    CAPTURE(outside);
    std::size_t at = 0, found = 0;
    while ((at = html.find(outside, at)) != std::string::npos) ++at, ++found;
    CHECK(found == (std::string(outside) == "http://" ? 1 : 0));  // SVG's name space, no address
  }
  for (const char* wanted : {"worker-3", "a &lt;job&gt;", "P6", "process 7: sleep", "1.1, fresh"}) {
    CAPTURE(wanted);
    CHECK(html.find(wanted) != std::string::npos);
  }
}

TEST_CASE("lives of workers that overlap have lanes of their own") {
  const judge::Story story =
      judge::beginning().worker(1.0, 2, "lost").worker(1.1, 4, "joined").steps(0, 5).story();
  const auto lives = lives_of(story, 2);
  REQUIRE(lives.size() == 4);
  CHECK(lives[1].end == "lost");
  CHECK(lives[1].to == 1.0);
  CHECK(lives[3].id == 4);
  CHECK(lives[3].lane == lives[1].lane);  // free again
  CHECK(lives[0].lane != lives[2].lane);
}

TEST_CASE("thinning keeps lows, highs and gaps") {
  std::vector<judge::Point> points;
  for (int i = 0; i < 10000; ++i) points.push_back({double(i), i == 5000 ? 99.0 : 1.0});
  const auto thin = thinned(points, 100);
  CHECK(thin.size() <= 101);
  CHECK(std::any_of(thin.begin(), thin.end(), [](const judge::Point& p) { return p.value == 99; }));
  CHECK(thinned(points, 10000).size() == 10000);
}

}  // namespace starling::chaos
