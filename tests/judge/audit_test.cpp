// What `starling audit` proves and refutes.

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "core/data/lanes.h"
#include "core/data/permutation.h"
#include "tests/judge/histories.h"

namespace starling::audit {

TEST_CASE("audit: a good run holds P1, P2 and P3, with its figures") {
  const History history = good();
  for (const Verdict& verdict : audit(history)) {
    CAPTURE(verdict.why);
    CHECK(verdict.finding == Finding::kHeld);
  }
  CHECK(has(verdict_of(history, "P1").why, "6 steps, one record each, 3 digests on the way"));
  CHECK(has(verdict_of(history, "P1").why, digest_of(6)));
  // One run has nothing to compare its bits with.
  CHECK(verdict_of(history, "P1").title == "one record");
  CHECK(has(verdict_of(history, "P1").why, "compared with those of another run"));
  CHECK(has(verdict_of(history, "P2").why, "12 micro-batches (6 steps of 2), each once, by 3"));
  CHECK(has(verdict_of(history, "P2").why, "all 5 samples once in each of 4 complete passes"));
  CHECK(has(verdict_of(history, "P2").why, "4 of 5 samples once in pass 4"));
  CHECK(has(verdict_of(history, "P3").why, "3 epochs, 1 of them after a loss"));
  CHECK(has(verdict_of(history, "P3").why, "1 of 2 wanted, in epoch 1.2"));
}

TEST_CASE("audit: P1 refuted") {
  const auto refuted = [](const std::function<void(Lines&)>& change, const char* why) {
    check_only(changed(change), "P1", Finding::kBroken, why);
  };
  refuted([](Lines& l) { l.insert(l.begin() + 8, l[6]); }, "line 9: step 0 is told twice");
  refuted(
      [](Lines& l) {
        l.insert(l.begin() + 8, l[6]);
        edit(8, "5.0", "5.1")(l);
      },
      "line 9: two records of step 0 differ; the first is in line 7");
  refuted([](Lines& l) { l.erase(l.begin() + 6, l.begin() + 8); },
          "line 7: step 1 follows, step 0 is not there");
  refuted([](Lines& l) { l.erase(l.begin() + 15, l.begin() + 17); },
          "step 4 follows, step 3 is not there");
  refuted(edit(13, "\"digest\":\"" + digest_of(2) + "\",", ""), "step 2 has no digest");
  refuted(edit(13, "\"tokens\":4", "\"tokens\":3"), "step 2 has 3 tokens, the job has 4");
  refuted(edit(22, "\"version\":6", "\"version\":5"), "done at version 5, steps end at 6");
  refuted(edit(22, "4.5", "4.25"), "the loss of `done` is not that of the last step");
  refuted([](Lines& l) { l.push_back(l.back()); }, "line 24: a second `done`");
  refuted([](Lines& l) { std::swap(l[22], l[4]); }, "line 6: something follows `done`");
}

TEST_CASE("audit: a step may be told after the end") {
  const History late = changed([](Lines& l) {
    const Lines told(l.begin() + 8, l.begin() + 10);
    l.erase(l.begin() + 8, l.begin() + 10);
    l.insert(l.end(), told.begin(), told.end());
  });
  for (const Verdict& verdict : audit(late)) {
    CAPTURE(verdict.why);
    CHECK(verdict.finding == Finding::kHeld);
  }
}

// The file of a coordinator that follows has all steps and no `mismatch` events: the coordinator that
// leads writes these into its own file.
TEST_CASE("audit: P1 is not shown by the file of a coordinator that did not lead") {
  const auto by_hand = [](Lines& l) {
    edit(0, "\"ev\":\"start\"", "\"coordinator\":\"coordinator-1\",\"ev\":\"start\"")(l);
  };
  const auto leads = [&](Lines& l) {
    by_hand(l);
    l.insert(l.begin() + 1,
             R"({"t":1,"ev":"leader","term":1,"coordinator":0,"pid":7,"election_ms":3})");
  };
  check_only(changed(by_hand), "P1", Finding::kNotShown, "differences and doubts of term 1");
  check_only(changed(leads), "P1", Finding::kHeld, "");
  const auto together = merge({changed(by_hand), changed(leads)});
  REQUIRE(together);
  CHECK(verdict_of(together.value(), "P1").finding == Finding::kHeld);
}

TEST_CASE("audit: P1 is not shown by a run that did not end well") {
  check_only(changed([](Lines& l) { l.pop_back(); }), "P1", Finding::kNotShown,
             "the run ended at version 6 without `done`");
  const auto failed = changed(
      [](Lines& l) { l.back() = R"({"t":1,"ev":"failed","code":4,"reason":"state lost"})"; });
  check_only(failed, "P1", Finding::kNotShown, "failed at version 6 with exit code 4 (state lost)");
}

// Goal: a run that says itself that its bits are in doubt is not acquitted, whatever else is right.
TEST_CASE("audit: P1 is not held by a run that says that a worker's work is in doubt") {
  const auto with = [](const char* line) {
    return changed([=](Lines& l) { l.insert(l.begin() + 8, line); });
  };
  check_only(
      with(R"({"t":1,"ev":"tainted","id":2,"name":"w2","first":1,"last":4,"reason":"other data"})"),
      "P1", Finding::kNotShown, "w2: other data; the result is in doubt from step 1 on");
  check_only(with(R"({"t":1,"ev":"tainted","id":2,"name":"","first":0,"last":null,"reason":"x"})"),
             "P1", Finding::kNotShown, "worker 2 (w): x");
  const auto mismatch = [&](const char* wrong) {
    return with(
        (R"({"t":1,"ev":"mismatch","version":1,"micro_batch":0,"worker":1,"by":2,"wrong":)" +
         std::string(wrong) + "}")
            .c_str());
  };
  check_only(mismatch("1"), "P1", Finding::kBroken,
             "line 9: step 1, micro-batch 0: worker 2 (w) computes another gradient, loss or "
             "metric than worker 1 (w)");
  check_only(mismatch("2"), "P1", Finding::kNotShown, "worker 2 (w) is wrong");
  check_only(mismatch("null"), "P1", Finding::kNotShown, "step 1, micro-batch 0");
  // Coordinators' files together do not lose it.
  const auto together =
      merge({good(), with(R"({"t":1,"ev":"tainted","id":2,"name":"w2","first":1,"reason":"y"})")});
  REQUIRE(together);
  CHECK(verdict_of(together.value(), "P1").finding == Finding::kNotShown);
}

TEST_CASE("audit: P1 is not held by a run that went on with another script") {
  const char* line =
      R"({"t":1,"ev":"warning","text":"since the checkpoint of step 1 the script has changed (other arguments); so"})";
  const auto with = [&] { return changed([&](Lines& l) { l.insert(l.begin() + 1, line); }); };
  check_only(with(), "P1", Finding::kNotShown, "the script has changed (other arguments)");
  check_only(changed([](Lines& l) {
               l.insert(l.begin() + 1, R"({"t":1,"ev":"warning","text":"small data"})");
             }),
             "P1", Finding::kHeld, "");
  const auto together = merge({good(), with()});
  REQUIRE(together);
  CHECK(verdict_of(together.value(), "P1").finding == Finding::kNotShown);
}

// Goal: a file that is known to lack lines does not accuse the run, and does not acquit it.
TEST_CASE("audit: what is missing in a file that says so is not shown, what is wrong is refuted") {
  const char* gaps[] = {R"({"t":1,"ev":"dropped","lines":2,"why":"no space"})",
                        R"({"t":1,"ev":"continued","coordinator":"coordinator-1","cut_bytes":3})"};
  for (const char* gap : gaps) {
    CAPTURE(gap);
    const auto with = [&](auto change) {
      return changed([&](Lines& l) {
        change(l);
        l.insert(l.begin() + 6, gap);
      });
    };
    const History lacking = with([](Lines& l) { l.erase(l.begin() + 6, l.begin() + 8); });
    check_only(lacking, "P1", Finding::kNotShown,
               "incomplete: step 1 follows, step 0 is not there");
    check_only(with([](Lines& l) { l.erase(l.begin() + 9); }), "P2", Finding::kNotShown,
               "incomplete: step 1 has no ledger");
    check_only(with(edit(9, "[1,2]", "[1,7]")), "P2", Finding::kBroken, "by worker 7");
    for (const Verdict& verdict : audit(with([](Lines&) {})))
      CHECK(verdict.finding == Finding::kHeld);  // nothing was lost that anybody needs
  }
}

TEST_CASE("audit: workers are counted by how they went") {
  CHECK(workers_text(good()) == "3 workers, 1 lost, 0 left out, 0 left");
  const auto fenced = changed(edit(10, "\"lost\"", "\"fenced\""));
  CHECK(workers_text(fenced) == "3 workers, 0 lost, 1 left out, 0 left");
  History later = changed(edit(0, "\"data\"", "\"from\":6,\"data\""));
  later.lost.clear();
  later.left_out = {2};
  const auto both = merge({fenced, later});
  REQUIRE(both);
  CHECK(workers_text(both.value()) == "6 workers, 0 lost, 2 left out, 0 left");
}

TEST_CASE("audit: P2 refuted") {
  const auto refuted = [](const std::function<void(Lines&)>& change, const char* why) {
    check_only(changed(change), "P2", Finding::kBroken, why);
  };
  refuted(edit(9, ",[1,2]", ""), "line 10: micro-batch 1 of step 1 (samples ");
  refuted(edit(9, ",[1,2]", ""), ") is missing");
  refuted(edit(9, "[1,2]", "[1,2],[1,1]"), ") is counted twice, for worker 2 (w) and worker 1 (w)");
  refuted(edit(9, "[1,2]", "[0,2]"), "micro-batch 0 of step 1");
  refuted(edit(9, "[1,2]", "[1,2],[2,2]"), "micro-batch 2 of step 1 does not exist");
  refuted(edit(9, "[1,2]", "[1,7]"), "by worker 7, no member of epoch 1.1");
  // Worker 3 joined later; worker 2 was lost before.
  refuted(edit(9, "[1,2]", "[1,3]"), "by worker 3 (w), no member of epoch 1.1");
  refuted(edit(16, "[1,3]", "[1,2]"), "by worker 2 (w), no member of epoch 1.2");
  refuted([](Lines& l) { l.erase(l.begin() + 9); }, "line 9: step 1 has no ledger");
  refuted([](Lines& l) { l.insert(l.begin() + 10, l[9]); },
          "line 11: a second ledger of step 1; the first is in line 10");
  refuted(
      [](Lines& l) {
        l.insert(l.begin() + 10, l[9]);
        edit(10, "\"version\":1", "\"version\":6")(l);
      },
      "line 11: a ledger of step 6, which has no record");
}

// Goal: the sample used twice is named. Method: micro-batch 0 of step 1 has places 4 and 5: the
// last of pass 0 and the first of pass 1.
TEST_CASE("audit: P2 names the samples of a micro-batch that was counted twice") {
  const auto text = verdict_of(changed(edit(9, "[1,2]", "[1,2],[0,2]")), "P2").why;
  const auto last = Permutation(kSeed, 0, kSamples)(4), next = Permutation(kSeed, 1, kSamples)(0);
  CHECK(has(text, "(samples " + std::to_string(last) + ", " + std::to_string(next) + ")"));
}

// Goal: of a run in lanes the samples are those of core/data/lanes.h. Method: six chunks of one sample, two lanes, of which
// each step takes two samples a lane: a pass of six is over after a step and a half.
TEST_CASE("audit: P2 counts and names the samples of lanes") {
  const auto in_lanes = [](Lines& l) {
    edit(0, "\"samples\":5", "\"samples\":6,\"chunk_samples\":1")(l);
    edit(0, "ledger_events = true", "ledger_events = true\\n[data]\\norder = \\\"lanes\\\"")(l);
  };
  const History history = changed(in_lanes);
  const Verdict held = verdict_of(history, "P2");
  CHECK(held.finding == Finding::kHeld);
  CHECK(has(held.why, "all 6 samples once in each of 4 complete passes"));
  const Lanes lanes(kSeed, 6, 1, 2);
  std::set<std::pair<std::uint64_t, std::uint64_t>> places;
  for (std::uint64_t sample = 0; sample < 6; ++sample)
    for (const Use& use : uses_of(history, sample)) {
      const LanePlace place = lanes.place_of(use.micro_batch.value(), use.step * 2 + use.place);
      CHECK(place == LanePlace{use.pass, sample, 0});
      CHECK(places.emplace(use.step, use.micro_batch.value() * 2 + use.place).second);
    }
  CHECK(places.size() == kSteps * 4);

  const auto text = verdict_of(changed([&](Lines& l) {
                                 in_lanes(l);
                                 edit(9, "[1,2]", "[1,2],[0,2]")(l);
                               }),
                               "P2")
                        .why;
  CHECK(has(text, "(samples " + std::to_string(lanes.place_of(0, 2).chunk) + ", " +
                      std::to_string(lanes.place_of(0, 3).chunk) + ") is counted twice"));
  // A row of a micro-batch that the job does not have is of no lane.
  CHECK(verdict_of(changed([&](Lines& l) {
                     in_lanes(l);
                     edit(9, "[1,2]", "[1,2],[2,2]")(l);
                   }),
                   "P2")
            .finding == Finding::kBroken);
}

TEST_CASE("audit: P2 says nothing of samples that a script draws for the places of a pass") {
  const auto own =
      edit(0, "ledger_events = true", "ledger_events = true\\n[model]\\nown_order = true");
  const Verdict held = verdict_of(changed(own), "P2");
  CHECK(held.finding == Finding::kHeld);
  CHECK(has(held.why, "each once, by 3 workers; which samples they have is the script's to say"));
  CHECK_FALSE(has(held.why, "5 samples"));
  const auto twice = verdict_of(changed([&](Lines& l) {
                                  own(l);
                                  edit(9, "[1,2]", "[1,2],[0,2]")(l);
                                }),
                                "P2")
                         .why;
  CHECK(has(twice, "micro-batch 0 of step 1 is counted twice"));
}

TEST_CASE("audit: P2 is not shown without a ledger, samples or members") {
  const auto unproven = [](const std::function<void(Lines&)>& change, const char* why) {
    check_only(changed(change), "P2", Finding::kNotShown, why);
  };
  unproven(
      [](Lines& l) {
        edit(0, "ledger_events = true", "ledger_events = false")(l);
        std::erase_if(l, [](const std::string& line) { return has(line, "\"ledger\""); });
      },
      "this run wrote no ledger");
  unproven(edit(0, "\"samples\":5", "\"samples\":0"), "which samples the micro-batches hold");
  unproven([](Lines& l) { l.erase(l.begin() + 17); }, "the members of epoch 1.3, in which step 4");
  // With ledgers promised, a run without them is refuted.
  check_only(changed([](Lines& l) {
               std::erase_if(l, [](const std::string& line) { return has(line, "\"ledger\""); });
             }),
             "P2", Finding::kBroken, "step 0 has no ledger");
}

TEST_CASE("audit: the last step of a run that was cut off may lack its ledger") {
  const History cut = changed([](Lines& l) { l.resize(21); });
  CHECK(verdict_of(cut, "P2").finding == Finding::kNotShown);
  CHECK(has(verdict_of(cut, "P2").why, "the last step, 5, has no ledger"));
  CHECK(verdict_of(cut, "P1").finding == Finding::kNotShown);
}

TEST_CASE("audit: P3 refuted") {
  const auto refuted = [](const std::function<void(Lines&)>& change, const char* why) {
    check_only(changed(change), "P3", Finding::kBroken, why);
  };
  refuted([](Lines& l) { edit(8, "\"epoch\":\"1.1\"", "\"epoch\":\"1.2\"")(l); },
          "epoch 1.2 begins at version 3, but step 1 is told in epoch 1.2");
  refuted([](Lines& l) { edit(18, "\"epoch\":\"1.3\"", "\"epoch\":\"1.1\"")(l); },
          "epoch 1.2 begins at version 3, but step 4 was committed before, in epoch 1.1");
  refuted([](Lines& l) { edit(20, "\"epoch\":\"1.3\"", "\"epoch\":\"1.2\"")(l); },
          "step 5 was committed in epoch 1.2, but step 4 in epoch 1.3");
  // A forced epoch that goes back: its plan is from before what was committed.
  refuted(
      [](Lines& l) {
        l.insert(l.begin() + 22,
                 epoch_line("1.4", "1.3", {member(1), member(3)}, 4, "compute").dump());
      },
      "line 23: epoch 1.4 begins at version 4, but step 5 was committed before, in epoch 1.3");
}

// All of 1.3 are lost after step 4 was told; worker 4 goes on from the checkpoint of step 3.
TEST_CASE("audit: a restart from a checkpoint is a way back that P3 does not cover") {
  const auto restarted = [](Lines& l) {
    const Lines again{
        R"({"t":1,"ev":"restart","version":3,"lost":"1.3","cause":"x"})",
        epoch_line("1.4", "1.3", {member(4)}, 3, "gather").dump(),
        ledger_line(3, "1.4", 4, 4).dump(),
        ledger_line(4, "1.4", 4, 4).dump(),
        step_line(5, "1.4").dump(),
        ledger_line(5, "1.4", 4, 4).dump(),
    };
    l.erase(l.begin() + 20, l.begin() + 22);  // step 5 as it was
    l.insert(l.begin() + 20, again.begin(), again.end());
  };
  check_only(changed(restarted), "P3", Finding::kNotShown,
             "from a checkpoint, 1 time, first at version 3");
  // What a restart does not explain is still refuted.
  const History unexplained = changed([&](Lines& l) {
    restarted(l);
    edit(20, "\"version\":3", "\"version\":4")(l);
  });
  CHECK(verdict_of(unexplained, "P2").finding == Finding::kBroken);
  CHECK(has(verdict_of(unexplained, "P2").why, "a second ledger of step 3"));
  CHECK(verdict_of(unexplained, "P3").finding == Finding::kBroken);
}

// The checkpoint of step 2 could not be loaded, so the run begins again, from the one before it.
TEST_CASE("audit: an epoch that began from a damaged checkpoint is undone by a restart") {
  const auto damaged = [](Lines& l) {
    edit(0, "\"ev\":\"start\"", "\"ev\":\"start\",\"from\":2")(l);
    edit(5, "\"predecessor\":\"0.0\"", "\"predecessor\":\"0.5\"")(l);
    l.insert(l.begin() + 5, {R"({"t":1,"ev":"restart","version":0,"lost":"0.5","cause":"x"})",
                             epoch_line("0.5", "0.0", {member(1), member(2)}, 2, "gather").dump()});
  };
  check_only(changed(damaged), "P3", Finding::kNotShown,
             "from a checkpoint, 1 time, first at version 0");
  const History unexplained = changed([&](Lines& l) {
    damaged(l);
    edit(5, "\"lost\":\"0.5\"", "\"lost\":\"0.4\"")(l);
  });
  CHECK(verdict_of(unexplained, "P3").finding == Finding::kBroken);
}

TEST_CASE("audit: a ledger that passed in a vote-begun epoch names who voted before it") {
  // The epoch between was planned, and nobody is known to have entered it: the votes are from 1.1.
  CHECK(verdict_of(changed([](Lines& l) {
                     edit(12, "\"predecessor\":\"1.1\"", "\"predecessor\":\"1.15\"")(l);
                     edit(12, "\"id\":\"1.2\"", "\"id\":\"1.20\"")(l);
                     for (const std::size_t i : {13, 14, 15, 16}) edit(i, "\"1.2\"", "\"1.20\"")(l);
                     for (const std::size_t i : {17, 18, 19, 20, 21}) {
                       const auto at = l[i].find("\"1.3\"");
                       l[i].replace(at, 5, "\"1.30\"");
                     }
                     edit(17, "\"predecessor\":\"1.2\"", "\"predecessor\":\"1.20\"")(l);
                     l.insert(l.begin() + 12,
                              epoch_line("1.15", "1.1", {member(1)}, nullptr, nullptr).dump());
                   }),
                   "P2")
            .finding == Finding::kHeld);
  // Epoch 1.2 begins at a vote, but not at that of step 3.
  check_only(changed(edit(16, "[1,3]", "[1,2]")), "P2", Finding::kBroken, "by worker 2");
}

// Goal: --sample and P2 agree with the order that training uses. Method: every sample is asked for,
// and the uses are counted against the places of all steps.
TEST_CASE("audit: every use of a sample is found, and who it was") {
  const History history = good();
  std::set<std::pair<std::uint64_t, std::uint64_t>> places;  // step and place in it
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    std::set<std::uint64_t> passes;
    for (const Use& use : uses_of(history, sample)) {
      const std::uint64_t in_step = use.micro_batch * 2 + use.place;
      const std::uint64_t place = use.step * 4 + in_step;
      CHECK(use.pass == place / kSamples);
      CHECK(Permutation(kSeed, use.pass, kSamples)(place % kSamples) == sample);
      CHECK(passes.insert(use.pass).second);
      CHECK(places.emplace(use.step, in_step).second);
      REQUIRE(use.workers.size() == 1);
      CHECK(use.workers[0] == (use.step < 3 ? use.micro_batch.value() + 1
                               : (use.step == 3) == (use.micro_batch == 0) ? 1
                                                                           : 3));
    }
    CHECK(passes.size() >= 4);
  }
  CHECK(places.size() == kSteps * 4);
}

TEST_CASE("the inverse of a permutation leads back") {
  for (const std::uint64_t n : {1ull, 2ull, 3ull, 64ull, 65ull, 1000ull})
    for (std::uint64_t i = 0; i < n; ++i) {
      const Permutation order(3, 1, n);
      CHECK(order.inverse(order(i)) == i);
    }
  const std::uint64_t large = (std::uint64_t{1} << 62) - 3;
  CHECK(Permutation(3, 1, large).inverse(Permutation(3, 1, large)(large - 1)) == large - 1);
}

}  // namespace starling::audit
