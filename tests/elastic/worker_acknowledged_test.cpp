// What a member has seen committed is told until a coordinator has noted it: observers learn of
// every step, whatever messages are lost.

#include <doctest/doctest.h>

#include "elastic/protocol/unacknowledged_steps.h"
#include "tests/elastic/one_worker.h"

namespace starling::elastic {
namespace {

using namespace worker_event;

const std::uint64_t kRetry = WorkerConfig{}.retry_ms;

std::vector<Version> steps_said(OneWorker& one) {
  std::vector<Version> versions;
  for (const Progress& progress : one.said<Progress>()) versions.push_back(progress.record.version);
  one.forget();
  return versions;
}

TEST_CASE("worker: a step is told again, with its times, until a coordinator has noted it") {
  OneWorker one;
  one.on(Tick{1});
  one.begin();
  for (const Version v : {Version{0}, Version{1}}) one.pass(kFirst, v);
  one.on(StepTimed{0, 12.5, Pause{}});
  CHECK(steps_said(one) == std::vector<Version>{0, 1});

  one.receive(Noted{1});
  one.on(Tick{1 + kRetry});
  const auto again = one.said<Progress>();
  REQUIRE(again.size() == 1);
  CHECK(again[0].record.version == 0);
  CHECK(again[0].ledger.size() == kMicroBatches);
  CHECK(again[0].step_ms == 12.5);
  CHECK(again[0].pause.has_value());
  one.forget();

  one.receive(Noted{0});
  one.on(Tick{1 + 2 * kRetry});
  CHECK(steps_said(one).empty());
}

TEST_CASE("worker: who stops with an unacknowledged step reports it all the same") {
  OneWorker one;
  one.on(Tick{1});
  one.begin();
  one.pass(kFirst, 0);
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  one.forget();
  one.on(Tick{1 + kRetry});
  CHECK(steps_said(one) == std::vector<Version>{0});
}

// The leader ends the job when all have finished, and nobody would ask for that step any more.
TEST_CASE("worker: it says that it has finished when every step is noted") {
  OneWorker one;
  WorkerConfig config = OneWorker::config({});
  config.steps = 2;
  one.worker = Worker(config);
  one.begin();
  for (const Version v : {Version{0}, Version{1}}) one.pass(kFirst, v);
  one.on(DigestReady{kFirst, 2, {1, 2}});
  one.receive(Noted{1});
  CHECK(one.said<Finished>().empty());
  one.receive(Noted{0});
  CHECK(one.said<Finished>().size() == 1);
  one.receive(Noted{1});  // of what the end says for a new leader
  CHECK(one.said<Finished>().size() == 1);
}

// Coordinators do not answer for so long, looked at every retry.
void silence(OneWorker& one, std::uint64_t& now, std::uint64_t ms) {
  for (const std::uint64_t until = now + ms; now < until;) one.on(Tick{now += kRetry});
  one.forget();
}

TEST_CASE("worker: what was said in vain is said again soon when a coordinator is heard again") {
  for (const bool heard : {false, true}) {
    CAPTURE(heard);
    OneWorker one;
    std::uint64_t now = 1;
    one.on(Tick{now});
    one.begin();
    for (const Version v : {Version{0}, Version{1}}) one.pass(kFirst, v);
    silence(one, now, 3200);  // the next words are due after 6.3 s
    if (heard) one.receive(LeaderHint{});
    one.on(Tick{now += kRetry});
    CHECK(steps_said(one) == (heard ? std::vector<Version>{0, 1} : std::vector<Version>{}));
  }
}

TEST_CASE("worker: a coordinator that answers all the time, but notes nothing, is not told more") {
  OneWorker one;
  std::uint64_t now = 1;
  one.on(Tick{now});
  one.begin();
  one.pass(kFirst, 0);
  one.forget();
  for (int i = 0; i < 60; ++i) {
    one.on(Tick{now += kRetry});
    one.receive(LeaderHint{});
  }
  CHECK(steps_said(one).size() == 5);  // after 100, 300, 700, 1500 and 3100 ms
}

using worker_command::Exit;

// Released, as it may be after a switch, and told of the end.
const Message kWhyToGo[] = {Released{}, Ended{0, "done", {1, 2}, 0.5, {3, 4}},
                            Ended{4, "state lost", {}, 0, {}}};

// It has passed steps 0 and 1 and then stopped, and is told to go.
struct ToldToGo : OneWorker {
  explicit ToldToGo(const Message& why) {
    on(Tick{now});
    begin();
    for (const Version v : {Version{0}, Version{1}}) pass(kFirst, v);
    on(Broken{kFirst, 1});
    on(Stopped{kFirst});
    silence(*this, now, kRetry);
    receive(why);
  }
  std::uint64_t now = 1;
};

TEST_CASE("worker: who is told to go says its steps first, and goes when they are noted") {
  for (const Message& why : kWhyToGo) {
    CAPTURE(why.index());
    ToldToGo one(why);
    one.on(Tick{one.now += kRetry});
    CHECK(steps_said(one) == std::vector<Version>{0, 1});
    one.receive(Noted{1});
    one.receive(why);  // it is told again as long as it speaks
    CHECK(one.count<Exit>() == 0);
    one.receive(Noted{0});
    REQUIRE(one.count<Exit>() == 1);
    const Exit exit = OneWorker::among<Exit>(one.all)[0];
    const auto* end = std::get_if<Ended>(&why);
    CHECK(exit.code == (end ? end->exit_code : 0));
    CHECK(exit.end.has_value() == (end != nullptr));
    CHECK_FALSE(exit.fenced);
  }
}

TEST_CASE("worker: who is told to go and has nothing to tell goes at once") {
  for (const Message& why : kWhyToGo) {
    OneWorker one;
    one.begin();
    one.pass(kFirst, 0);
    one.receive(Noted{0});
    CHECK(OneWorker::among<Exit>(one.receive(why)).size() == 1);
  }
}

TEST_CASE("worker: who goes does nothing but tell") {
  ToldToGo one(Released{});
  one.forget();
  one.receive(Freeze{{1, 9}});
  one.receive(Fenced{});
  one.receive(Committed{OneWorker::plan(PlanKind::kForced, {1, 9}, kFirst, 2, BeginAt::kGather)});
  CHECK(one.all.empty());
}

TEST_CASE("worker: who goes waits no longer than it may, as far as it could hear") {
  const std::uint64_t kMost = WorkerConfig{}.last_words_ms;
  ToldToGo one(Released{});
  one.on(Tick{one.now += 3'600'000});  // it was frozen: so much counts as one look
  CHECK(one.count<Exit>() == 0);
  silence(one, one.now, kMost - 2 * kRetry);
  CHECK_FALSE(one.worker.gone());
  one.on(Tick{one.now += kRetry});
  CHECK(one.worker.gone());
  CHECK(one.count<Exit>() == 1);
}

TEST_CASE("worker: who has left goes as such when its notice ends") {
  OneWorker one;
  std::uint64_t now = 1;
  one.on(Tick{now});
  one.begin();
  one.pass(kFirst, 0);
  one.on(NoticeGiven{Notice{"SIGTERM", "", /*notice_ms=*/3 * kRetry, true}});
  one.receive(Released{});
  silence(one, now, 2 * kRetry);
  CHECK_FALSE(one.worker.gone());
  one.on(Tick{now += kRetry});
  REQUIRE(one.count<Exit>() == 1);
  CHECK(OneWorker::among<Exit>(one.all)[0].code == 0);
}

TEST_CASE(
    "unacknowledged steps: of many steps the oldest are due, a few at once and each once in a "
    "while") {
  UnacknowledgedSteps steps;
  Progress progress;
  for (Version v = 0; v < 40; ++v) {
    progress.record.version = v;
    steps.add(progress, /*now_ms=*/10);
  }
  CHECK(steps.due(10 + kRetry - 1, kRetry).empty());
  std::vector<Version> said;
  for (int i = 0; i < 4; ++i)
    for (const UnacknowledgedSteps::Due& due : steps.due(10 + kRetry, kRetry))
      said.push_back(due.progress.record.version);
  REQUIRE(said.size() == 40);
  for (Version v = 0; v < 40; ++v) CHECK(said[v] == v);
  CHECK(steps.acknowledge(7));
  CHECK_FALSE(steps.acknowledge(7));
}

TEST_CASE("unacknowledged steps: it keeps no more rows than a bounded memory holds, the newest") {
  UnacknowledgedSteps steps;
  Progress progress;
  progress.ledger.resize(std::size_t{1} << 17);
  for (Version v = 0; v < 9; ++v) {
    progress.record.version = v;
    steps.add(progress, 0);
  }
  std::vector<Version> kept;
  for (auto due = steps.due(kRetry, kRetry); !due.empty(); due = steps.due(kRetry, kRetry)) {
    REQUIRE(due.size() == 1);  // they are large
    kept.push_back(due.front().progress.record.version);
  }
  CHECK(kept == std::vector<Version>{5, 6, 7, 8});
}

// Goal: a coordinator that does not answer is not told more because of that.
// Method: 25 s without an answer, at a look every 100 ms; one step, and a thousand of them.
TEST_CASE(
    "unacknowledged steps: the time until the next report doubles, and each goes to another "
    "coordinator") {
  UnacknowledgedSteps steps;
  Progress progress;
  progress.record.version = 3;
  steps.add(progress, 0);
  std::vector<std::uint64_t> at;
  std::vector<std::uint32_t> turns;
  for (std::uint64_t now = 0; now < 25'000; now += kRetry)
    for (const UnacknowledgedSteps::Due& due : steps.due(now, kRetry)) {
      at.push_back(now);
      turns.push_back(due.turn);
    }
  CHECK(at == std::vector<std::uint64_t>{100, 300, 700, 1500, 3100, 6300, 9500, 12700, 15900, 19100,
                                         22300});
  for (std::uint32_t i = 0; i < turns.size(); ++i) CHECK(turns[i] == i);
}

TEST_CASE(
    "unacknowledged steps: of a thousand steps of many rows a few are said at a time, more when "
    "some are taken") {
  UnacknowledgedSteps steps;
  Progress progress;
  progress.ledger.resize(1024);
  for (Version v = 0; v < 400; ++v) {
    progress.record.version = v;
    steps.add(progress, 0);
  }
  std::size_t said = 0;
  std::uint64_t now = 0;
  for (; now < 25'000; now += kRetry) said += steps.due(now, kRetry).size();
  CHECK(said <= 2 * 250);  // it was 16 each time, to each coordinator
  // A coordinator listens again: one for one.
  std::size_t answers = 0;
  for (auto due = steps.due(now, kRetry); !due.empty(); due = steps.due(now, kRetry, 1))
    for (const UnacknowledgedSteps::Due& d : due)
      answers += steps.acknowledge(d.progress.record.version);
  CHECK(answers > 300);
}

}  // namespace
}  // namespace starling::elastic
