#include "tools/judge/promises.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/judge/stories.h"
#include "tools/judge/pauses.h"

namespace starling::judge {
namespace {

// A kill of worker 3 at t = 1.25, between steps 2 and 3, after which everything is as it should be.
Tale disturbed_tale() {
  return beginning()
      .steps(0, 3)
      .worker(1.26, 3, "lost")
      .epoch(1.30, "1.2", "1.1", "forced", 3, {1, 2})
      .steps(3, 5);
}

Evidence evidence_of(Tale tale) {
  Evidence e;
  e.quiet = quiet_story();
  e.reference_digest = kTaleDigest;
  e.loud = tale.story();
  e.deeds = {deed(&chaos::faults::kKill, 1.25, 3)};
  e.strangers = {{"garbage", true, "closed"}};
  return e;
}
Evidence good() {
  return evidence_of(disturbed_tale().done());
}

Verdict verdict_on(const Evidence& e, const std::string& promise) {
  for (const Verdict& v : verdicts_of(e))
    if (v.promise == promise) return v;
  return {};
}

#define CHECK_FINDING(evidence, promise, wanted)                       \
  do {                                                                 \
    const Verdict found_verdict = verdict_on(evidence, promise);       \
    CHECK_MESSAGE(found_verdict.finding == wanted, found_verdict.why); \
  } while (false)

}  // namespace

TEST_CASE("a run that kept everything: held or not tested, nothing broken") {
  const auto verdicts = verdicts_of(good());
  REQUIRE(verdicts.size() == 9);
  for (const Verdict& v : verdicts) {
    CAPTURE(v.promise);
    CHECK_MESSAGE(v.finding != Finding::kBroken, v.why);
  }
  CHECK(all_held(verdicts));
  for (const char* promise : {"P1", "P2", "P3", "P6", "P7", "P8", "faults"})
    CHECK_FINDING(good(), promise, Finding::kHeld);
}

TEST_CASE("P1: another digest, another loss, or no digest at all") {
  CHECK_FINDING(evidence_of(disturbed_tale().done('e')), "P1", Finding::kBroken);

  Evidence other_loss = good();
  other_loss.loud.step_lines[4].record.loss = 2.5;
  CHECK_FINDING(other_loss, "P1", Finding::kBroken);

  CHECK_FINDING(evidence_of(disturbed_tale()), "P1", Finding::kBroken);
}

TEST_CASE("P1: another metric of a step, or another evaluation of the same parameters") {
  const auto run = [](Tale tale, double metric, double held_out, double held_out_metric) {
    StepRecord record{2, 2, 1, 8};
    record.metrics = {0.5, metric};
    return tale.tell(1.2, event::StepPassed{record, {1, 1}, 3, 100})
        .ledger(1.2, 2)
        .tell(1.2, event::Evaluated{2, held_out, {held_out_metric}})
        .steps(3, 5)
        .tell(1.6, event::Evaluated{5, held_out, {held_out_metric}})
        .done();
  };
  const auto verdict = [&](double metric, double held_out, double held_out_metric) {
    Evidence e = evidence_of(run(beginning().steps(0, 2), metric, held_out, held_out_metric));
    e.quiet = run(beginning().steps(0, 2), 0.25, 4, 0.75).story();
    CHECK_FINDING(e, "P2", Finding::kHeld);
    return verdict_on(e, "P1");
  };
  CHECK(verdict(0.25, 4, 0.75).finding == Finding::kHeld);
  CHECK(verdict(0.25, 4, 0.75).why == std::string("digest ") + kTaleDigest +
                                          ", losses, norms and metrics of 5 steps, 2 evaluations");
  CHECK(verdict(0.125, 4, 0.75).why == "step 2 has metric 1 0.125, undisturbed 0.25");
  CHECK(verdict(0.25, 5, 0.75).why == "step 2 has held-out loss 5, undisturbed 4");
  CHECK(verdict(0.25, std::nan(""), 0.75).why ==
        "step 2 has held-out loss not finite, undisturbed 4");
  CHECK(verdict(0.25, 4, 0.5).why == "step 2 has held-out metric 0 0.5, undisturbed 0.75");
  CHECK(verdict(0.25, 4, 0.5).finding == Finding::kBroken);
}

// The final one has no step.
TEST_CASE("P1: the evaluation at the end is compared as well") {
  Evidence e = good();
  e.quiet->evaluation_lines = {{{5, 4.0}}};
  e.loud.evaluation_lines = {{{5, 4.5}}};
  CHECK_FINDING(e, "P1", Finding::kBroken);
  e.loud.evaluation_lines = {{{5, 4.0}}};
  CHECK_FINDING(e, "P1", Finding::kHeld);
}

TEST_CASE("P1: a given digest alone is compared, too") {
  Evidence e = good();
  e.quiet.reset();
  CHECK_FINDING(e, "P1", Finding::kHeld);
  e.reference_digest = "other";
  CHECK_FINDING(e, "P1", Finding::kBroken);
  e.reference_digest.clear();
  CHECK_FINDING(e, "P1", Finding::kNotShown);
}

TEST_CASE("P1: a run that says itself that its bits are in doubt is no evidence of them") {
  const char* lines[] = {
      R"({"t":1.2,"ev":"tainted","id":3,"name":"c","first":0,"last":2,"reason":"other data"})",
      R"({"t":1.2,"ev":"mismatch","version":2,"micro_batch":0,"worker":1,"by":2,"wrong":1})"};
  for (const char* line : lines) {
    Evidence e = good();
    e.loud.add(line);
    CHECK_FINDING(e, "P1", Finding::kNotShown);
    Evidence before = good();
    before.quiet->add(line);
    CHECK_FINDING(before, "P1", Finding::kNotShown);
    Evidence other = evidence_of(disturbed_tale().done('e'));
    other.loud.add(line);
    CHECK_FINDING(other, "P1", Finding::kBroken);
  }
}

TEST_CASE("P2: a micro-batch missing, twice, of nobody, or of no step") {
  const struct {
    const char* rows;
    bool whole;
  } cases[] = {{"[0,1],[1,2]", true},  {"[0,1]", false},       {"[0,1],[0,2]", false},
               {"[0,1],[2,2]", false}, {"[0,1],[1,9]", false}, {"", false}};
  for (const auto& c : cases) {
    CAPTURE(c.rows);
    Tale tale = beginning().steps(0, 4).step(1.4, 4).ledger(1.4, 4, c.rows).done();
    Evidence e = evidence_of(tale);
    CHECK_FINDING(e, "P2", (c.whole ? Finding::kHeld : Finding::kBroken));
  }
  CHECK_FINDING(evidence_of(beginning().steps(0, 5).ledger(1.5, 5).done()), "P2", Finding::kBroken);
  CHECK_FINDING(evidence_of(beginning().steps(0, 5).step(1.5, 4).done()), "P2", Finding::kBroken);
  CHECK_FINDING(evidence_of(beginning().steps(0, 3).steps(4, 5).done()), "P2", Finding::kBroken);
}

TEST_CASE("P2: a whole ledger over a wrong sum shows in the norm") {
  Evidence e = good();
  e.loud.step_lines[2].record.norm = 1.5;
  CHECK_FINDING(e, "P2", Finding::kBroken);
  CHECK_FINDING(e, "P1", Finding::kBroken);
}

TEST_CASE("P3: an epoch that begins before a committed step, or before an earlier epoch") {
  const Tale back =
      beginning().steps(0, 3).epoch(1.50, "1.2", "1.1", "forced", 2, {1, 2}).steps(3, 5).done();
  CHECK_FINDING(evidence_of(back), "P3", Finding::kBroken);

  const Tale falling = disturbed_tale().epoch(1.5, "1.3", "1.2", "forced", 1, {1, 2}).done();
  CHECK_FINDING(evidence_of(falling), "P3", Finding::kBroken);
}

TEST_CASE("P3: a forced epoch in which no step followed shows nothing") {
  Evidence e = evidence_of(disturbed_tale().done());
  CHECK_FINDING(e, "P3", Finding::kHeld);
  e.loud.epochs.back().resume_ms.reset();
  CHECK_FINDING(e, "P3", Finding::kNotShown);
}

TEST_CASE("P3: a restart although somebody had a copy") {
  const Tale restarted = disturbed_tale().restart(1.6, 2, "1.2").done();
  CHECK_FINDING(evidence_of(restarted), "P3", Finding::kBroken);
}

TEST_CASE("P4: an evicted worker that computes, or lives on") {
  const Tale counts = beginning()
                          .steps(0, 3)
                          .epoch(1.30, "1.2", "1.1", "forced", 3, {1, 2})
                          .steps(3, 4)
                          .step(1.4, 4)
                          .ledger(1.4, 4, "[0,1],[1,3]")
                          .done();
  CHECK_FINDING(evidence_of(counts), "P4", Finding::kBroken);

  Evidence e = good();
  e.revenants = {{{"worker-3", 3, 103}, "1.2", 1.4, 1.45}};
  CHECK_FINDING(e, "P4", Finding::kHeld);
  e.loud.done->t = 120;
  e.revenants.front().gone_t = e.revenants.front().woken_t + 60;  // with the run
  CHECK_FINDING(e, "P4", Finding::kBroken);
  e.stalls = {{e.revenants.front().woken_t, e.revenants.front().woken_t + 58}};  // of the machine
  CHECK_FINDING(e, "P4", Finding::kHeld);
  e.revenants.front().gone_t.reset();
  CHECK_FINDING(e, "P4", Finding::kBroken);
}

TEST_CASE("P4: a life that goes on until the job's end, or ends with it, tells of no fence") {
  Evidence e = good();  // done at t = 2
  const Revenant fenced{{"worker-2", 2, 102}, "1.2", 1.4, 1.5};
  Revenant r{{"worker-3", 3, 103}, "1.2", 0, std::nullopt};
  for (const double woken : {1.9, 2.3, 60.0})  // shortly before the end, and after it
    for (const std::optional<double> gone :
         {std::optional<double>(), std::optional<double>(woken + 0.2), std::optional<double>(99)}) {
      r.woken_t = woken;
      r.gone_t = gone;
      e.revenants = {r};
      CHECK_FINDING(e, "P4", Finding::kNotShown);
    }
  CHECK(conclusion(verdicts_of(e)).find("P4") != std::string::npos);

  e.revenants.push_back(fenced);
  CHECK_FINDING(e, "P4", Finding::kHeld);
  CHECK(verdict_on(e, "P4").why.rfind("1 worker woke up left out", 0) == 0);

  e.loud.done->t = 9;  // there was time enough
  r.woken_t = 1.4;
  r.gone_t = 9.1;
  e.revenants = {fenced, r};
  CHECK_FINDING(e, "P4", Finding::kBroken);
  e.watched_until_t = 3;  // and nobody looked for so long
  CHECK_FINDING(e, "P4", Finding::kHeld);
  e.loud.done.reset();
  CHECK_FINDING(e, "P4", Finding::kHeld);
}

TEST_CASE("P5: state is lost with exit code 4 and one line, and only when no copy was left") {
  // Workers 2 and 3 have the two copies of segment 1.
  Tale tale = beginning().steps(0, 3).worker(1.3, 2, "lost").worker(1.3, 3, "lost").failed(1.4, 4);
  Evidence e = evidence_of(tale);
  e.run_status = 4;
  e.run_errors = {"state lost: ..."};
  e.deeds = {deed(&chaos::faults::kKill, 1.25, 2), deed(&chaos::faults::kKill, 1.25, 3)};
  CHECK_FINDING(e, "P5", Finding::kHeld);
  CHECK_FINDING(e, "P1", Finding::kNotShown);
  CHECK(all_held(verdicts_of(e)));

  SUBCASE("somebody had a copy") {
    e.deeds.pop_back();
    CHECK_FINDING(e, "P5", Finding::kBroken);
    CHECK_FINDING(e, "P1", Finding::kBroken);
  }
  SUBCASE("two lines") {
    e.run_errors.push_back("another");
    CHECK_FINDING(e, "P5", Finding::kBroken);
  }
  SUBCASE("another exit code than the event tells") {
    e.run_status = 5;
    CHECK_FINDING(e, "P5", Finding::kBroken);
  }
  SUBCASE("the steps before it have other bits") {
    e.loud.step_lines[1].record.loss = 3;
    CHECK_FINDING(e, "P1", Finding::kBroken);
  }
}

TEST_CASE("P3, P5, P7: a restart from a checkpoint when every copy of something was taken") {
  // Workers 2 and 3 have the two copies of segment 1; step 2 is done again by others.
  Tale tale = beginning().steps(0, 3).worker(1.26, 2, "lost").worker(1.26, 3, "lost");
  tale.restart(1.3, 2, "1.1");
  tale.worker(1.4, 4, "joined").worker(1.4, 5, "joined");
  tale.epoch(1.5, "1.2", "1.1", "fresh", 2, {4, 5}, "restart").ledger(31, 2, "[0,4],[1,5]");
  for (int v : {3, 4}) tale.step(30 + v, v).ledger(30 + v, v, "[0,4],[1,5]");
  Evidence e = evidence_of(tale.done());
  e.deeds = {deed(&chaos::faults::kKill, 1.25, 2), deed(&chaos::faults::kKill, 1.25, 3)};
  for (const char* promise : {"P1", "P2", "P3", "P5"}) CHECK_FINDING(e, promise, Finding::kHeld);
  CHECK_FINDING(e, "P7", Finding::kNotShown);  // 30 s of steps that are done again are no pause

  e.deeds.pop_back();  // 3 lives, for all that was done here
  CHECK_FINDING(e, "P3", Finding::kBroken);
  CHECK_FINDING(e, "P7", Finding::kNotShown);
}

TEST_CASE("P5: a worker that ends for no reason") {
  Evidence e = good();
  e.ends = {{"worker-1", 101, 139, false}};
  CHECK_FINDING(e, "P5", Finding::kBroken);
}

TEST_CASE("P6: anything left") {
  Evidence e = good();
  e.leftovers = {"process 77"};
  CHECK_FINDING(e, "P6", Finding::kBroken);
}

TEST_CASE("P7: a long pause after a kill that stood alone") {
  Evidence e = good();
  e.pause_ms_max = 50;  // the gap is 100 ms, a step as long
  CHECK_FINDING(e, "P7", Finding::kHeld);

  Tale slow = beginning().steps(0, 3).epoch(1.9, "1.2", "1.1", "forced", 3, {1, 2});
  slow.step(2.2, 3).ledger(2.2, 3).step(2.3, 4).ledger(2.3, 4).done();
  Evidence late = evidence_of(slow);
  late.pause_ms_max = 50;
  CHECK_FINDING(late, "P7", Finding::kBroken);

  late.deeds.push_back(deed(&chaos::faults::kStop, 1.25, 1, 1.8));  // then nobody can tell
  CHECK_FINDING(late, "P7", Finding::kNotShown);
}

// Goal: the silence of a worker whose death nobody tells is waited for, a lease at least, and that is
// no fault of the group.
TEST_CASE("P7: a kill of a worker whose guard was killed before does not count") {
  Tale slow = beginning().steps(0, 3).epoch(2.9, "1.2", "1.1", "forced", 3, {1, 2});
  slow.step(3.2, 3).ledger(3.2, 3).step(3.3, 4).ledger(3.3, 4).done();
  Evidence e = evidence_of(slow);
  CHECK_FINDING(e, "P7", Finding::kBroken);
  e.deeds.insert(e.deeds.begin(), deed(&chaos::faults::kGuardKill, 0.1, 3));
  CHECK_FINDING(e, "P7", Finding::kNotShown);
  CHECK(verdict_on(e, "P7").why ==
        "no join or leave stood alone, and no kill but of workers whose guards were dead before");
  CHECK(pauses_of(e.loud, e.deeds).at(0).what == "kill worker-3 without its guard");

  e.deeds.front() = deed(&chaos::faults::kGuardKill, 0.1, 2);  // of another worker
  CHECK_FINDING(e, "P7", Finding::kBroken);
  e.deeds.front() = deed(&chaos::faults::kGuardKill, 5, 3);  // later
  CHECK_FINDING(e, "P7", Finding::kBroken);
  e.deeds.front() = deed(&chaos::faults::kGuardKill, 0.1, 3);
  e.deeds.front().targets.front().id = 7;  // an earlier life, under another guard
  CHECK_FINDING(e, "P7", Finding::kBroken);
}

TEST_CASE("P7: joins stopped nobody, and no kill stood alone") {
  Evidence e = good();
  e.deeds.push_back(deed(&chaos::faults::kStop, 1.25, 1, 1.8));
  e.deeds.push_back(deed(&chaos::faults::kJoin, 1.9, 4));
  CHECK_FINDING(e, "P7", Finding::kHeld);
  CHECK(verdict_on(e, "P7").why ==
        "for joins and leaves: 1 joins and leaves stopped nobody; kills are not tested, as none of "
        "1 stood alone");
}

TEST_CASE("P7: a join that the job's end overtook shows nothing") {
  Evidence e = good();
  e.loud = quiet_story();
  e.deeds = {deed(&chaos::faults::kJoin, 1.9, 4)};
  CHECK_FINDING(e, "P7", Finding::kHeld);
  e.deeds.front().effects.front() = {"worker-4 is a member of an epoch", false, true, 0};
  CHECK_FINDING(e, "P7", Finding::kNotShown);
}

TEST_CASE("P7: a join that forces an epoch") {
  Evidence e = good();
  e.deeds = {deed(&chaos::faults::kJoin, 1.1, 4)};
  CHECK_FINDING(e, "P7", Finding::kBroken);
  e.stalls = {{0.2, 0.9}, {5, 6}};  // of the machine, at other times
  e.loud.epochs.back().t = 4.5;
  CHECK_FINDING(e, "P7", Finding::kBroken);
  e.stalls = {{3.9, 4.4}};
  CHECK_FINDING(e, "P7", Finding::kHeld);
}

TEST_CASE("P8: a stranger that was not refused") {
  Evidence e = good();
  e.strangers.push_back({"a worker with a key of its own", false, "joined"});
  CHECK_FINDING(e, "P8", Finding::kBroken);
}

TEST_CASE("P8: who met nobody was refused by nobody") {
  Evidence e = good();
  e.strangers = {{"garbage", true, "no connection", /*met=*/false}};
  CHECK_FINDING(e, "P8", Finding::kNotShown);
  e.strangers.push_back({"a hello", true, "closed"});
  CHECK(verdict_on(e, "P8").why == "1 attempt without a key, each refused");
}

TEST_CASE("a fault without its effect is no fault") {
  Evidence e = good();
  e.deeds.front().effects.front().seen = false;
  CHECK_FINDING(e, "faults", Finding::kBroken);
  e.deeds.front().effects.front().overtaken = true;  // the job ended before anything was seen
  CHECK_FINDING(e, "faults", Finding::kNotShown);
  e.deeds.push_back(deed(&chaos::faults::kKill, 1.25, 2));
  CHECK_FINDING(e, "faults", Finding::kHeld);
  CHECK(
      verdict_on(e, "faults").why ==
      "2 faults done and each effect seen, but for 1 that the job's end or another fault overtook");
}

TEST_CASE("a run to which nothing was done shows nothing") {
  Evidence e = good();
  e.deeds.front().outcome = Deed::Outcome::kHeldBack;
  e.deeds.push_back(Deed{});  // not reached
  CHECK(verdict_on(e, "faults").why == "none done, 1 held back, 1 not reached");
  CHECK_FINDING(e, "faults", Finding::kNotShown);
  CHECK_FALSE(anything_done(e));
  CHECK(anything_done(good()));
  e.deeds.clear();  // a replayed stretch in which nothing changes
  CHECK_FINDING(e, "faults", Finding::kNotShown);
}

TEST_CASE("what was not tested is not said to have held") {
  auto verdicts = verdicts_of(good());
  CHECK(conclusion(verdicts) == "every promise that was tested held; not tested: P4, P5");
  for (Verdict& v : verdicts) v.finding = Finding::kHeld;
  CHECK(conclusion(verdicts) == "every promise held");
  verdicts.front().finding = Finding::kBroken;
  CHECK(conclusion(verdicts) == "BROKEN");
}

TEST_CASE("a run that was there already: what cannot be known is not claimed") {
  Evidence e = evidence_of(disturbed_tale());  // it goes on
  e.quiet.reset();
  e.reference_digest.clear();
  e.strangers.clear();
  e.attached = true;
  for (const char* promise : {"P1", "P5", "P6", "P8"}) {
    CAPTURE(promise);
    CHECK_FINDING(e, promise, Finding::kNotShown);
  }
  for (const char* promise : {"P2", "P3", "P7", "faults"}) {
    CAPTURE(promise);
    CHECK_FINDING(e, promise, Finding::kHeld);
  }
  SUBCASE("others may force epochs") {
    e.deeds.clear();
    CHECK_FINDING(e, "P7", Finding::kNotShown);
  }
  SUBCASE("it ends for lack of state, and we took no last copy") {
    e.loud.failed = {{4, "state lost"}, 1.6};
    CHECK_FINDING(e, "P5", Finding::kBroken);
    e.deeds.push_back(deed(&chaos::faults::kKill, 1.5, 1));
    e.deeds.push_back(deed(&chaos::faults::kKill, 1.5, 2));
    CHECK_FINDING(e, "P5", Finding::kHeld);
  }
}

}  // namespace starling::judge
