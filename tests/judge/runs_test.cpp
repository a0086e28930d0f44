#include "tools/judge/audit/runs.h"

#include <doctest/doctest.h>

#include "tests/judge/histories.h"

namespace starling::audit {

// Goal: what no coordinator was told alone, all of them show together.
TEST_CASE("files of one run are taken together") {
  const auto part = [](std::size_t from, std::size_t to, const char* name) {
    return changed([&](Lines& l) {
      l.erase(l.begin() + static_cast<std::ptrdiff_t>(from),
              l.begin() + static_cast<std::ptrdiff_t>(to));
      edit(0, "\"data\"", "\"coordinator\":\"" + std::string(name) + "\",\"data\"")(l);
      l.insert(l.begin() + 1,
               R"({"t":1,"ev":"leader","term":1,"coordinator":0,"pid":7,"election_ms":3})");
    });
  };
  const History early = part(13, 23, "coordinator-0"), late = part(1, 10, "coordinator-1");
  CHECK(verdict_of(early, "P1").finding == Finding::kNotShown);
  CHECK(has(verdict_of(late, "P1").why, "this is what coordinator-1 was told"));
  const auto together = merge({late, early});
  REQUIRE(together);
  for (const Verdict& verdict : audit(together.value())) {
    CAPTURE(verdict.why);
    CHECK(verdict.finding == Finding::kHeld);
  }
  CHECK(together.value().lost.size() == 1);
  // Two stories of one step are refuted, and both places are named.
  auto other = late;
  other.steps.front().norm = 7;
  const auto refuted = merge({late, early, other});
  REQUIRE(refuted);
  CHECK(has(verdict_of(refuted.value(), "P1").why, "of file 3: two records of step"));
  other.start.job["job.seed"] = "10";
  CHECK(has(merge({late, other}).error().text(), "file 2 is of another job"));
}

// Goal: who ends a run and goes on with it takes no step back. Method: the good run is ended in step
// 5 with a checkpoint of step 4; another run goes on from there, whose epochs and workers have the
// numbers of the first.
TEST_CASE("a run that was ended in order and the one that went on from it are one") {
  const json ended{{"t", 2},       {"ev", "ended"},   {"signal", 15},
                   {"version", 5}, {"checkpoint", 4}, {"reason", "ended by SIGTERM"}};
  const auto first = [&](bool in_order) {
    return changed([&](Lines& l) {
      l.resize(20);  // step 4 and its ledger are the last
      if (in_order) l.push_back(ended.dump());
    });
  };
  History second = changed([&](Lines& l) {
    l.erase(l.begin() + 1, l.begin() + 18);
    l.insert(l.begin() + 1, epoch_line("1.1", "0.0", {member(1), member(2)}, 4, "gather").dump());
    for (std::size_t i = 2; i < l.size(); ++i) {
      for (std::size_t at; (at = l[i].find("\"1.3\"")) != std::string::npos;)
        l[i].replace(at, 5, "\"1.1\"");
      for (std::size_t at; (at = l[i].find("[0,3],[1,1]")) != std::string::npos;)
        l[i].replace(at, 11, "[0,2],[1,1]");
    }
    edit(0, "\"data\"", "\"from\":4,\"data\"")(l);
  });
  const History alone = first(true);
  // Nobody has gone on from it: that is an end too, by itself or in a list of one.
  const auto listed = merge({alone});
  REQUIRE(listed);
  for (const History* history : {&alone, &listed.value()})
    for (const Verdict& verdict : audit(*history)) {
      CAPTURE(verdict.why);
      CHECK(verdict.finding == Finding::kHeld);
    }
  CHECK(has(verdict_of(alone, "P1").why,
            "ended in order at version 5 before the job was done (ended by SIGTERM), with a "
            "checkpoint of step 4 from which --resume goes on"));
  CHECK(verdict_of(first(false), "P1").finding == Finding::kNotShown);
  check_only(changed([&](Lines& l) {
               l.resize(18);  // without step 4
               l.push_back(ended.dump());
             }),
             "P1", Finding::kBroken, "ended in order at version 5, steps end at 4");
  for (const std::vector<History>& files : {std::vector<History>{alone, second}, {second, alone}}) {
    const auto both = merge(files);
    REQUIRE(both);
    for (const Verdict& verdict : audit(both.value())) {
      CAPTURE(verdict.why);
      CHECK(verdict.finding == Finding::kHeld);
    }
    CHECK(has(verdict_of(both.value(), "P2").why, "by 5 workers"));
    CHECK(has(verdict_of(both.value(), "P3").why, "ended in order or done, and gone on with"));
  }
  // The one that went on has fewer steps, and the schedule that both have.
  const auto with_steps = [&](const char* schedule) {
    return changed([&](Lines& l) {
      l.resize(20);
      l.push_back(ended.dump());
      edit(0, "\\nsteps = 6", "\\nsteps = 9")(l);
      edit(0, "schedule_steps = 0", schedule)(l);
    });
  };
  const auto shortened = merge({with_steps("schedule_steps = 6"), second});
  REQUIRE(shortened);
  CHECK(verdict_of(shortened.value(), "P1").finding == Finding::kHeld);
  const auto slower = merge({with_steps("schedule_steps = 9"), second});
  REQUIRE(!slower);
  CHECK(slower.error().text() == "file 2 is of another job: the schedule's length is 9 and 6");
  // Without the word of an end the state was lost.
  const auto killed = merge({first(false), second});
  REQUIRE(killed);
  CHECK(verdict_of(killed.value(), "P3").finding == Finding::kNotShown);
}

// Goal: stop= of a script is a legitimate end. Method: the first run has made 8 of 9 steps when it is
// ended; the run that goes on from step 4 has 6, and is done there.
TEST_CASE("a run that went back to end with an earlier step is whole") {
  const auto first = [](bool in_order) {
    return changed([&](Lines& l) {
      l.resize(22);
      const auto put = [&](const json& line) { l.push_back(line.dump()); };
      for (Version v = 6; v < 8; ++v) put(step_line(v, "1.3")), put(ledger_line(v, "1.3", 3, 1));
      if (in_order)
        put({{"t", 2},
             {"ev", "ended"},
             {"signal", 15},
             {"version", 8},
             {"checkpoint", 4},
             {"reason", "stop"}});
      edit(0, "\\nsteps = 6", "\\nsteps = 9")(l);
      edit(0, "\"steps\":6", "\"steps\":9")(l);
      edit(0, "schedule_steps = 0", "schedule_steps = 9")(l);
    });
  };
  const auto second = [](const char* loss) {
    return changed([&](Lines& l) {
      l.resize(1);
      edit(0, "schedule_steps = 0", "schedule_steps = 9")(l);
      edit(0, "\"steps\":6", "\"steps\":6,\"from\":4")(l);
      const auto put = [&](const json& line) { l.push_back(line.dump()); };
      for (const std::uint64_t id : {1, 2})
        put({{"t", 1}, {"ev", "worker"}, {"id", id}, {"what", "joined"}, {"name", "w"}});
      put(epoch_line("1.1", "0.0", {member(1), member(2)}, 4, "gather"));
      for (Version v = 4; v < 6; ++v) put(step_line(v, "1.1")), put(ledger_line(v, "1.1", 1, 2));
      put({{"t", 1}, {"ev", "done"}, {"version", 6}, {"digest", digest_of(6)}, {"loss", 0}});
      edit(l.size() - 1, "\"loss\":0", std::string("\"loss\":") + loss)(l);
    });
  };
  const auto both = merge({first(true), second("4.5")});
  REQUIRE_MESSAGE(both, both.error().text());
  for (const Verdict& verdict : audit(both.value())) {
    CAPTURE(verdict.why);
    CHECK(verdict.finding == Finding::kHeld);
  }
  CHECK(has(verdict_of(both.value(), "P1").why, "6; it went back there from step 8"));
  const auto other_loss = merge({first(true), second("4.4")});
  CHECK(has(verdict_of(other_loss.value(), "P1").why, "the loss of `done` is not that"));
  const auto killed = merge({first(false), second("4.5")});
  CHECK(has(verdict_of(killed.value(), "P1").why, "done at version 6, steps end at 8"));
}

// Goal: a run that goes on with more steps after one that was done takes no step back. Method: the good
// run is done after 6 steps; another run of 9 goes on from its checkpoint of step 4, and does 4 and 5 again.
TEST_CASE("a run that was done and the one that went on from it are one") {
  const auto later = [](const std::string& digest) {
    return changed([&](Lines& l) {
      l.resize(1);
      edit(0, "schedule_steps = 0", "schedule_steps = 6")(l);
      edit(0, "\\nsteps = 6", "\\nsteps = 9")(l);
      edit(0, "\"steps\":6", "\"steps\":9,\"from\":4")(l);
      const auto put = [&](const json& line) { l.push_back(line.dump()); };
      put(epoch_line("1.1", "0.0", {member(1), member(2)}, 4, "gather"));
      for (Version v = 4; v < 9; ++v) {
        json step = step_line(v, "1.1");
        if (v == 6) step["digest"] = digest;
        put(step), put(ledger_line(v, "1.1", v == 4 ? 2 : 1, v == 4 ? 1 : 2));
      }
      put({{"t", 1}, {"ev", "done"}, {"version", 9}, {"digest", digest_of(9)}, {"loss", 4.2}});
    });
  };
  const History first = good(), second = later(digest_of(6));
  for (const std::vector<History>& files : {std::vector<History>{first, second}, {second, first}}) {
    const auto both = merge(files);
    REQUIRE_MESSAGE(both, both.error().text());
    for (const Verdict& verdict : audit(both.value())) {
      CAPTURE(verdict.why);
      CHECK(verdict.finding == Finding::kHeld);
    }
    CHECK(has(verdict_of(both.value(), "P1").why, "9 steps"));
    CHECK(has(verdict_of(both.value(), "P3").why,
              "done, and gone on with from a checkpoint, 1 time"));
  }
  // What was done before is still compared with what went on.
  const auto other = merge({first, later(std::string(32, 'e'))});
  REQUIRE(other);
  CHECK(verdict_of(other.value(), "P1").why ==
        "line 23: the digest of `done` at version 6 is not that of the run that went on "
        "from there");
  // The later run was killed: that the earlier one was done, ended or failed is no end of both.
  History cut = later(digest_of(6));
  cut.done.clear();
  const auto killed = merge({first, cut});
  REQUIRE(killed);
  CHECK(verdict_of(killed.value(), "P1").why ==
        "the run ended at version 9 without `done`; as far as it goes: 9 steps, one record each, 5 "
        "digests on the way");
}

// A resume that its workers refused, beside the run that it was to go on from.
TEST_CASE("a run that failed before its first step takes nothing from the others") {
  const History refused = changed([](Lines& l) {
    l.resize(1);
    edit(0, "\"data\"", "\"from\":6,\"data\"")(l);
    l.push_back(R"({"t":1,"ev":"failed","code":2,"reason":"other data"})");
  });
  const auto both = merge({good(), refused});
  REQUIRE(both);
  for (const Verdict& verdict : audit(both.value())) CHECK(verdict.finding == Finding::kHeld);
  const auto alone = merge({refused});
  REQUIRE(alone);
  CHECK(verdict_of(alone.value(), "P1").finding == Finding::kNotShown);
}

TEST_CASE("a run that went on from a checkpoint begins there") {
  check_only(changed([](Lines& l) {
               l.erase(l.begin() + 6, l.begin() + 8);  // step 0
               edit(0, "\"ev\":\"start\"", "\"ev\":\"start\",\"from\":1")(l);
               edit(5, "\"base\":0", "\"base\":1")(l);
             }),
             "P1", Finding::kHeld, "5 steps");  // and P2 and P3 hold as well
  const History later = changed([](Lines& l) {
    l.erase(l.begin() + 6, l.begin() + 8);
    edit(0, "\"ev\":\"start\"", "\"ev\":\"start\",\"from\":1")(l);
    edit(5, "\"base\":0", "\"base\":1")(l);
  });
  const std::string p3 = verdict_of(later, "P3").why;
  CHECK(has(p3, "3 epochs, 1 of them after a loss"));  // the first one is after none
  CHECK(has(p3, "begun from the checkpoint of step 1"));
  CHECK_FALSE(has(p3, "no checkpoint was read"));
  CHECK(has(verdict_of(later, "P2").why,
            "all 5 samples once in each of 3 complete passes, and 1 of 5 samples once in pass 0, 4 "
            "of 5 samples once in pass 4"));
  const History hidden = changed([](Lines& l) { l.erase(l.begin() + 6, l.begin() + 8); });
  CHECK(has(verdict_of(hidden, "P1").why, "step 0 is not there"));
}

}  // namespace starling::audit
