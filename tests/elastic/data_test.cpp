// P1: whoever reads other data than the group is found as soon as both have read all of it.

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/elastic/leader_rig.h"
#include "tests/elastic/one_worker.h"

namespace starling::elastic {
namespace {

constexpr Digest kOurData{1, 2}, kOtherData{3, 4};

// Three workers in an epoch.
struct DataLeader : LeaderRig {
  explicit DataLeader(bool pure = false, bool stop = false, std::vector<Checkpoint> from = {}) {
    LeaderConfig config;
    config.pure_model = pure;
    if (stop) config.elastic.on_mismatch = OnMismatch::kStop;
    config.micro_batches = 6;
    config.steps = 100;
    config.segments = 3;
    config.wanted_workers = 3;
    data = {};
    lead(config, 1);
    apply(JobStarted{{}, from.empty() ? Version{0} : from.back().version, from});
    for (std::uint64_t nonce : {1, 2, 3}) join(nonce);
    for (std::uint64_t nonce : {1, 2, 3}) {
      Report report;
      report.promise = asked();
      report.version = kNoVersion;
      report.copies.assign(3, false);
      say(nonce, report);
    }
    commit();
    REQUIRE(group.plan().has_value());
    sent.clear();
  }
  void take(const LeaderCommand& command) override {
    if (const auto* tidy = std::get_if<leader_command::Tidy>(&command)) tidied.push_back(*tidy);
    if (const auto* event = std::get_if<Event>(&command)) {
      if (const auto* e = std::get_if<event::Warning>(event)) warnings.push_back(e->text);
      if (const auto* e = std::get_if<event::Tainted>(event)) taints.push_back(*e);
      if (const auto* e = std::get_if<event::Mismatch>(event)) mismatches.push_back(*e);
    }
  }
  void beat(std::uint64_t nonce, const Digest& read) {
    Heartbeat beat{group.plan()->id, 1, {}};
    beat.data = read;
    say(nonce, beat);
  }
  bool refused(std::uint64_t nonce) const {
    return std::any_of(sent.begin(), sent.end(), [&](const leader_command::Send& send) {
      return send.to.nonce == nonce && std::holds_alternative<Refused>(send.body);
    });
  }
  std::vector<leader_command::Tidy> tidied;
  std::vector<std::string> warnings;
  std::vector<event::Tainted> taints;
  std::vector<event::Mismatch> mismatches;
};

TEST_CASE("leader: a member whose data differ from those of most members is told to go") {
  DataLeader one;
  one.beat(1, {});
  one.beat(2, kOtherData);
  one.beat(3, kOurData);
  for (std::uint64_t nonce : {2, 3}) CHECK(!one.refused(nonce));  // which of them is right?
  one.beat(1, kOurData);
  one.beat(2, kOtherData);
  CHECK(one.refused(2));
  for (std::uint64_t nonce : {1, 3}) CHECK(!one.refused(nonce));
  one.beat(2, kOtherData);
  REQUIRE(one.warnings.size() == 1);  // once
  CHECK(one.warnings[0].find("2 reads other data than the group, digest " +
                             to_string(kOtherData)) == 0);
  REQUIRE(one.taints.size() == 1);
  CHECK(one.taints[0].id == 2);
  CHECK(one.taints[0].first == 0);
  CHECK(one.taints[0].last == Version{1});
  CHECK(one.warnings[0].find(one.taints[0].name + " " + one.taints[0].reason) == 0);
}

TEST_CASE("leader: where as many members say one thing as the other, the lowest rank is right") {
  DataLeader one;
  one.beat(1, kOurData);
  one.beat(2, kOtherData);
  one.beat(3, {5, 6});
  one.beat(2, kOtherData);
  CHECK(!one.refused(1));
  for (std::uint64_t nonce : {2, 3}) CHECK(one.refused(nonce));
}

TEST_CASE("leader: who joins and reads other data than the members is told to go") {
  DataLeader one;
  for (std::uint64_t nonce : {1, 2, 3}) one.beat(nonce, kOurData);
  one.join(4);
  one.beat(4, kOtherData);
  CHECK(one.refused(4));
  for (std::uint64_t nonce : {1, 2, 3}) CHECK(!one.refused(nonce));
  CHECK(one.warnings.size() == 1);
  CHECK(one.taints.empty());  // it has computed nothing
}

TEST_CASE("leader: whose data are known to be others when it asks is not let in") {
  DataLeader one;
  for (std::uint64_t nonce : {1, 2, 3}) one.beat(nonce, kOurData);
  one.data = kOtherData;
  one.join(4);
  CHECK(one.refused(4));
  CHECK(one.group.find({4, Nonce(4)}) == nullptr);
  CHECK(one.taints.empty());
  one.join(4);  // it asks until it is answered
  REQUIRE(one.warnings.size() == 1);
  CHECK(one.warnings[0].find("4 asked to join and is refused: the data here are others") == 0);
  one.data = kOurData;
  one.join(5);
  CHECK_FALSE(one.refused(5));
}

TEST_CASE("leader: data that are not those of the checkpoint are told, whoever has them") {
  DataLeader one(false, false, {{40, {}, {7, 7}, "", kOurData}, {50, {}, {7, 7}, "", {}}});
  SUBCASE("all members have others") {
    for (std::uint64_t nonce : {1, 2, 3}) one.beat(nonce, kOtherData);
    for (std::uint64_t nonce : {1, 2, 3}) CHECK(one.refused(nonce));
    REQUIRE(one.taints.size() == 3);
    CHECK(one.taints[0].first == Version{50});  // from where it goes on
    CHECK(one.warnings[0].find("reads other data than the checkpoint of step 40") !=
          std::string::npos);
    CHECK(one.warnings[0].find("in the checkpoints that followed") != std::string::npos);
    REQUIRE(!one.tidied.empty());  // those that this run has written go
    CHECK(one.tidied.back().above == Version{50});
  }
  SUBCASE("all members have the same") {
    for (std::uint64_t nonce : {1, 2, 3}) one.beat(nonce, kOurData);
    for (std::uint64_t nonce : {1, 2, 3}) CHECK(!one.refused(nonce));
    CHECK(one.warnings.empty());
  }
}

// ---- Data that were not read to the end --------------------------------------------------------

namespace {

// Every member has made all steps.
void finish(DataLeader& one) {
  Progress last{one.group.plan()->id, {}, 3, {}, 0};
  last.record.version = 99;
  for (std::uint64_t nonce : {1, 2, 3}) {
    one.say(nonce, last);
    one.say(nonce, Finished{one.group.plan()->id, 100, {}, {}});
  }
}

}  // namespace

TEST_CASE("leader: a job that ends before a member has read its data is in doubt") {
  DataLeader one;
  for (std::uint64_t nonce : {1, 2}) one.beat(nonce, kOurData);
  SUBCASE("one member has not") {
    finish(one);
    REQUIRE(one.taints.size() == 1);
    CHECK(one.taints[0].id == 3);
    CHECK(one.taints[0].first == Version{0});
  }
  SUBCASE("all have") {
    one.beat(3, kOurData);
    finish(one);
    CHECK(one.taints.empty());
  }
  CHECK(one.first_proposed<JobEnded>() != nullptr);
}

TEST_CASE("leader: a job does not end with a member that reads other data") {
  DataLeader one;
  for (std::uint64_t nonce : {1, 2}) one.beat(nonce, kOurData);
  one.beat(3, kOtherData);
  finish(one);
  CHECK(one.refused(3));
  CHECK(one.first_proposed<JobEnded>() == nullptr);
}

TEST_CASE("leader: what an earlier run left in doubt stays in doubt") {
  Checkpoint from{50, {}, {7, 7}, "", kOurData};
  from.doubted_from = 30;
  DataLeader one(false, false, {from});
  for (std::uint64_t nonce : {1, 2, 3}) one.beat(nonce, kOurData);
  finish(one);
  REQUIRE(!one.taints.empty());
  CHECK(one.taints[0].name == "the checkpoint of step 50");
  CHECK(one.taints[0].first == Version{30});
}

// ---- Workers that are gone ----------------------------------------------------------------------

namespace {

// Member `dead` is lost in step 1; the others report and form the next epoch.
void lose(DataLeader& one, std::uint64_t dead) {
  const EpochId before = one.group.plan()->id;
  std::vector<std::uint64_t> others;
  for (const Member& m : one.group.plan()->members)
    if (m.who.nonce != Nonce(dead)) others.push_back(m.who.counter);
  one.sent.clear();
  one.die(dead);
  for (const std::uint64_t nonce : others) {
    Report report;
    report.promise = one.asked();
    report.entered = before;
    report.version = 1;
    report.parameters_complete = true;
    report.copies.assign(3, true);
    one.say(nonce, report);
  }
  one.commit();
  REQUIRE(one.group.plan()->id > before);
  REQUIRE(one.group.plan()->members.size() == others.size());
}

}  // namespace

// What it has computed is in the result, and nobody can ask it any more.
TEST_CASE("leader: a worker that is lost before its data were compared leaves a doubt") {
  DataLeader one;
  for (std::uint64_t nonce : {1, 2}) one.beat(nonce, kOurData);
  SUBCASE("it had not read them") {
    one.beat(3, {});
    lose(one, 3);
    REQUIRE(one.taints.size() == 1);
    CHECK(one.taints[0].id == 3);
    CHECK(one.taints[0].first == Version{0});
    CHECK(one.group.plan()->doubted_from == Version{0});
    lose(one, 2);  // later plans keep it
    CHECK(one.taints.size() == 1);
    CHECK(one.group.plan()->doubted_from == Version{0});
  }
  SUBCASE("it had read the same") {
    one.beat(3, kOurData);
    lose(one, 3);
    CHECK(one.taints.empty());
    CHECK(one.group.plan()->doubted_from == kNoVersion);
  }
  SUBCASE("it had read the same, and has to read them again") {
    one.beat(3, kOurData);
    one.beat(3, {});
    lose(one, 3);
    CHECK(one.taints.size() == 1);
    CHECK(one.group.plan()->doubted_from == Version{0});
  }
  SUBCASE("it had read others, and was told") {
    one.beat(3, kOtherData);
    lose(one, 3);
    CHECK(one.taints.size() == 1);
    CHECK(one.group.plan()->cause == "3 was told to go");
    CHECK(one.group.plan()->doubted_from == Version{0});
  }
}

TEST_CASE("leader: what a worker said of its data when it joined is known to every leader") {
  DataLeader one;
  one.data = kOurData;
  one.join(4);
  LeaderConfig config;
  config.micro_batches = 6;
  config.steps = 100;
  config.segments = 3;
  one.lead(config, 2);
  one.on(leader_event::Tick{one.now});
  one.beat(4, {});
  CHECK(one.group.find({4, Nonce(4)})->join.data == kOurData);
  one.beat(4, kOtherData);
  for (std::uint64_t nonce : {1, 2, 3}) one.beat(nonce, kOurData);
  one.beat(4, kOtherData);
  CHECK(one.refused(4));
}

TEST_CASE("leader: a doubt outlives its leader") {
  DataLeader one;
  for (std::uint64_t nonce : {1, 2}) one.beat(nonce, kOurData);
  one.beat(3, kOtherData);
  lose(one, 3);
  REQUIRE(one.group.plan()->doubted_from == Version{0});
  LeaderConfig config;
  config.micro_batches = 6;
  config.steps = 100;
  config.segments = 3;
  one.lead(config, 2);
  one.taints.clear();
  for (std::uint64_t nonce : {1, 2}) one.beat(nonce, kOurData);
  Progress last{one.group.plan()->id, {}, 2, {}, 0};
  last.record.version = 99;
  for (std::uint64_t nonce : {1, 2}) {
    one.say(nonce, last);
    one.say(nonce, Finished{one.group.plan()->id, 100, {}, {}});
  }
  CHECK(one.first_proposed<JobEnded>() != nullptr);
  REQUIRE(one.taints.size() == 1);
  CHECK(one.taints[0].first == Version{0});
}

// It is the last of several, so its data are compared with nobody's.
TEST_CASE("leader: a worker that ends a job alone is in doubt if others were members before") {
  DataLeader one;
  one.beat(1, {});
  for (std::uint64_t nonce : {2, 3}) one.beat(nonce, kOurData);
  lose(one, 3);
  lose(one, 2);
  one.taints.clear();
  Progress last{one.group.plan()->id, {}, 1, {}, 0};
  last.record.version = 99;
  one.say(1, last);
  one.say(1, Finished{one.group.plan()->id, 100, {}, {}});
  CHECK(one.first_proposed<JobEnded>() != nullptr);
  CHECK(!one.taints.empty());
}

TEST_CASE("leader: a run that goes on from a checkpoint in doubt says so when it begins") {
  Checkpoint clean{40, {}, {7, 7}, "", kOurData}, from{50, {}, {7, 7}, "", kOurData};
  from.doubted_from = 30;
  DataLeader one(false, false, {clean, from});
  REQUIRE(one.taints.size() == 1);
  CHECK(one.taints[0].name == "the checkpoint of step 50");
  REQUIRE(one.warnings.size() == 1);
  CHECK(one.warnings[0].find("that of step 40 is not") != std::string::npos);
}

// ---- Contributions that differ ----------------------------------------------------------------

namespace {

Heartbeat beat_with(const DataLeader& one, std::uint64_t by, Version v, std::uint64_t worker,
                    std::uint64_t first, std::uint64_t second) {
  Heartbeat beat{one.group.plan()->id, 1, {}};
  beat.differences = {{v, 0, worker, 100, first, second, by}};
  return beat;
}

}  // namespace

TEST_CASE("leader: of two who compute different gradients both are named; with a third one goes") {
  DataLeader one(/*pure=*/true);
  one.say(2, beat_with(one, 2, 0, 1, 5, 5));
  one.say(2, beat_with(one, 2, 0, 1, 5, 5));  // again and again
  one.say(3, beat_with(one, 2, 0, 1, 5, 5));  // from another one, which had it with a vote
  REQUIRE(one.mismatches.size() == 1);
  CHECK(one.mismatches[0] == event::Mismatch{0, 0, 1, 2, {}});
  CHECK(one.taints.empty());
  for (std::uint64_t nonce : {1, 2, 3}) CHECK(!one.refused(nonce));
  one.say(3, beat_with(one, 3, 1, 1, 5, 5));
  REQUIRE(one.mismatches.size() == 2);
  CHECK(one.mismatches[1].wrong == std::uint64_t{1});
  REQUIRE(one.taints.size() == 1);
  CHECK(one.taints[0].id == 1);
  one.beat(1, {});
  CHECK(one.refused(1));
  for (std::uint64_t nonce : {2, 3}) CHECK(!one.refused(nonce));
}

TEST_CASE("leader: a model that may keep state accuses no worker") {
  DataLeader one(/*pure=*/false);
  one.say(2, beat_with(one, 2, 0, 1, 5, 6));
  REQUIRE(one.mismatches.size() == 1);
  CHECK(!one.mismatches[0].wrong);
  CHECK(one.taints.empty());
  one.beat(2, {});
  CHECK(!one.refused(2));
  REQUIRE(one.warnings.size() == 1);
  CHECK(one.warnings[0].find("keep something from one micro-batch to the next") !=
        std::string::npos);
}

TEST_CASE("leader: with on_mismatch = \"stop\" a difference is the end, exit code 1") {
  DataLeader one(/*pure=*/true, /*stop=*/true);
  one.say(2, beat_with(one, 2, 0, 1, 5, 5));
  REQUIRE(one.proposals.size() == 1);
  const auto* end = std::get_if<JobEnded>(&one.proposals.front());
  REQUIRE(end != nullptr);
  CHECK(end->exit_code == 1);
}

TEST_CASE("worker: its heartbeats say what its data are when it has read them") {
  OneWorker one;
  one.on(worker_event::Tick{1});
  one.begin();
  one.on(worker_event::Tick{200});
  REQUIRE(!one.said<Heartbeat>().empty());
  CHECK(one.said<Heartbeat>().back().data == Digest{});
  one.on(worker_event::DataHashed{kOurData});
  one.on(worker_event::Tick{400});
  CHECK(one.said<Heartbeat>().back().data == kOurData);
  // They have to be read again, and this worker may end at once.
  const auto said = one.said<Heartbeat>().size();
  one.on(worker_event::DataHashed{});
  REQUIRE(one.said<Heartbeat>().size() == said + 1);
  CHECK(one.said<Heartbeat>().back().data == Digest{});
}

}  // namespace
}  // namespace starling::elastic
