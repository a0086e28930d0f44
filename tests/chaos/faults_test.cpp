// Kinds of faults: the table, and that a kind needs nothing outside of its own description.

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "tests/judge/stories.h"
#include "tools/chaos/disturber.h"
#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/report.h"
#include "tools/chaos/timeline.h"
#include "tools/judge/pauses.h"

namespace starling::chaos {
namespace {

// A kind that no table has: a worker is nudged, and seen to be awake.
void draw_nudge(Fault& fault, Numbers& numbers, double lease_s) {
  fault.for_s = numbers.seconds(lease_s, 2 * lease_s);
}
void nudge(Disturbance& it) {
  const auto chosen = it.choose(it.run().cast.members());
  if (chosen.empty()) return;
  it.hit("nudge", {chosen.front()->target()});
  it.expect(
      kSoon_s, chosen.front()->name + " is awake", [] { return true; },
      [&it] { it.say("  awake"); });
  it.later(it.fault().for_s, [&it] { it.lasts_until(it.run().now); });
}
void let_sleep(Disturbance& it) {
  it.say("  good night");
}
const FaultKind kNudge{
    .word = "nudge",
    .keys = {.for_s = true},
    .draw = draw_nudge,
    .begin = nudge,
    .end = let_sleep,
    .shown = {.style = "kind", .sign = "!", .meaning = "nudged"},
};

}  // namespace

TEST_CASE("every kind of fault has a word of its own, can be done and can be shown") {
  std::set<std::string> words;
  for (const FaultKind* kind : fault_kinds()) {
    const std::string word = kind->word;
    CAPTURE(word);
    CHECK(words.insert(word).second);
    CHECK(bool(kind->begin));
    auto read = parse_kinds(word);
    REQUIRE(read);
    CHECK(read.value() == std::vector{kind});
    const std::string style = kind->shown.style;
    CHECK(std::string(chart_style()).find("." + style + "{") != std::string::npos);
    CHECK(legend().find(kind->shown.meaning) != std::string::npos);
    // What cannot be told from the group's own change may force no epoch, or it would break P7.
    if (kind->judged.announced) CHECK_FALSE(kind->judged.forces_epochs);
  }
  CHECK(words.size() >= 12);
}

TEST_CASE("what is drawn if nobody says what, and what may be done to a run that others started") {
  CHECK(kinds_that(&FaultKind::usual) == "kill,stop,join,leave");
  CHECK(kinds_that(&FaultKind::attached) == "kill,stop,leave");
}

TEST_CASE("a report's legend names signs once, and bars by their colour") {
  CHECK(legend() ==
        "x killed, g guard killed, + joined, - told to leave, ~ a bit flipped, grey stopped, cut "
        "off or without space, yellow slow, late or apart");
}

// Goal: adding a kind of fault is one file and one line of the table.
// Method: a kind that only this test knows is drawn, done, seen, ended and reported.
TEST_CASE("a kind of fault is all that is known of it") {
  Draw draw;
  draw.kinds = {&kNudge};
  draw.rate = 1;
  draw.seconds = 2;
  Plan plan;
  plan.faults = draw_faults(draw);
  REQUIRE(plan.faults.size() == 2);
  CHECK(plan.faults.front().for_s >= 1);
  CHECK_FALSE(disturbs_links(plan));
  CHECK(format_plan(plan).find("kind = \"nudge\"\n") != std::string::npos);

  const judge::Tale tale = judge::beginning().steps(0, 5);
  const judge::Story story = tale.story();
  Cast cast;
  for (const auto& seen : story.workers) {
    cast.add(seen.name, static_cast<int>(seen.pid), 0);
    cast.learn(seen);
  }
  cast.learn(story.epochs.front());
  std::string said;
  DisturberCalls calls;
  calls.say = [&](const std::string& line) { said += line.substr(line.find("s  ") + 3) + "\n"; };
  Disturber disturber(plan, {}, calls, cast, story);
  disturber.advance(1 + plan.faults.front().at_s, 1);
  disturber.advance(2 + plan.faults.front().at_s, 1);
  disturber.end(4);
  const auto& deeds = disturber.deeds();
  CHECK(said.find("nudge worker-") == 0);
  CHECK(said.find("\n  awake\n  good night\n") != std::string::npos);
  CHECK(deeds.front().verified());
  CHECK(deeds.front().effects.front().what == deeds.front().targets.front().name + " is awake");
  CHECK(deeds.back().outcome == judge::Deed::Outcome::kNotReached);

  Report report;
  report.evidence.deeds = deeds;
  CHECK(report_json(report).find("\"kind\": \"nudge\"") != std::string::npos);
  CHECK(timeline(story, deeds).svg().find(">!<title>") != std::string::npos);
  CHECK(judge::pauses_of(story, deeds).empty());  // it says nothing of being timed
}

}  // namespace starling::chaos
