// Checkpoints at a worker: when it writes, and how it begins from one.

#include <doctest/doctest.h>

#include "tests/elastic/one_worker.h"

namespace starling::elastic {
namespace {

using namespace worker_command;

OneWorker writing_every(std::uint64_t every) {
  OneWorker one;
  WorkerConfig config = OneWorker::config({});
  config.checkpoint.every = every;
  config.steps = 7;
  one.worker = Worker(config);
  one.begin();
  return one;
}

std::vector<Version> written(const OneWorker& one) {
  std::vector<Version> versions;
  for (const auto& c : OneWorker::among<WriteCheckpoint>(one.all)) versions.push_back(c.version);
  return versions;
}

TEST_CASE("worker: it writes what it owns at every multiple, after the apply and before the next") {
  OneWorker one = writing_every(2);
  for (Version v = 0; v < 6; ++v) {
    one.pass(kFirst, v);
    if (v % 2 == 1) one.on(worker_event::CheckpointWritten{{v + 1, {}, {}, {}}});
  }
  CHECK(written(one) == std::vector<Version>{2, 4, 6});
  const auto command = OneWorker::among<WriteCheckpoint>(one.all).front();
  CHECK(command.segments == std::vector<SegmentId>{0});
  CHECK(command.record.version == 1);
  // Between the two applies, where the state has that label.
  Version label = 0;
  for (const auto& c : one.all) {
    if (const auto* apply = std::get_if<Apply>(&c)) label = apply->record.version + 1;
    if (const auto* write = std::get_if<WriteCheckpoint>(&c)) CHECK(write->version == label);
  }
  CHECK(one.said<ShardWritten>().size() == 3);
}

TEST_CASE("worker: the last version is not written, nor is any without checkpoints in the job") {
  OneWorker last = writing_every(7);
  for (Version v = 0; v < 7; ++v) last.pass(kFirst, v);
  CHECK(written(last).empty());
  OneWorker none = writing_every(0);
  for (Version v = 0; v < 5; ++v) none.pass(kFirst, v);
  CHECK(written(none).empty());
}

// Goal: all skip the same versions, so that the parts of one version are complete or none is there.
TEST_CASE("worker: while anybody is still writing, nobody writes the next one") {
  SUBCASE("this one") {
    OneWorker one = writing_every(2);
    for (Version v = 0; v < 4; ++v) one.pass(kFirst, v);
    CHECK(written(one) == std::vector<Version>{2});
    const auto said = one.said<ShardWritten>();
    REQUIRE(said.size() == 1);
    CHECK(said[0].version == 4);
    CHECK(said[0].error == "the one before it is still being written");
    const auto votes = OneWorker::among<SendVote>(one.all);
    CHECK(!votes[1].vote.writing);
    CHECK(votes[2].vote.writing);
  }
  SUBCASE("another") {
    OneWorker one = writing_every(2);
    one.pass(kFirst, 0);
    one.vote_for(kFirst, 1);
    Vote busy{1};
    busy.writing = true;
    one.on(worker_event::VoteArrived{kFirst, 1, busy});
    one.vote(kFirst, 1, 2);
    CHECK(written(one).empty());
    CHECK(one.said<ShardWritten>().empty());
  }
}

// Goal: all write the same version, whoever of them was asked: votes are what all of them have.
TEST_CASE("worker: who is asked for a checkpoint says so in its vote, and all write that version") {
  OneWorker one = writing_every(6);
  SUBCASE("this one is asked") {
    one.pass(kFirst, 0);
    one.receive(CheckpointAsked{0});
    one.pass(kFirst, 1);
    CHECK(written(one) == std::vector<Version>{2});
    const auto votes = OneWorker::among<SendVote>(one.all);
    CHECK(!votes[0].vote.wants_checkpoint);
    CHECK(votes[1].vote.wants_checkpoint);
  }
  SUBCASE("another one is asked") {
    one.pass(kFirst, 0);
    one.vote_for(kFirst, 1);
    Vote wants{1};
    wants.wants_checkpoint = true;
    one.on(worker_event::VoteArrived{kFirst, 1, wants});
    one.vote(kFirst, 1, 2);
    CHECK(written(one) == std::vector<Version>{2});
  }
}

TEST_CASE("worker: a checkpoint that was asked for waits for the one being written") {
  OneWorker one = writing_every(2);
  for (Version v = 0; v < 2; ++v) one.pass(kFirst, v);
  one.receive(CheckpointAsked{2});
  one.pass(kFirst, 2);
  CHECK(written(one) == std::vector<Version>{2});
  CHECK(one.said<ShardWritten>().empty());
  one.on(worker_event::CheckpointWritten{{2, {}, {}, {}}});
  one.pass(kFirst, 3);
  one.on(worker_event::CheckpointWritten{{4, {}, {}, {}}});
  one.pass(kFirst, 4);  // it has been written
  CHECK(written(one) == std::vector<Version>{2, 4});
  one.receive(CheckpointAsked{4});  // that one was lost
  one.pass(kFirst, 5);
  CHECK(written(one) == std::vector<Version>{2, 4, 6});
}

TEST_CASE("worker: a job without checkpoints writes none, whoever asks") {
  OneWorker one = writing_every(0);
  one.receive(CheckpointAsked{0});
  one.pass(kFirst, 0);
  CHECK(written(one).empty());
}

// ---- A fresh start ----------------------------------------------------------------------------

// Welcomed, and told of a fresh plan from the checkpoint of version 4.
OneWorker told_of_a_restart() {
  OneWorker one;
  Join join;
  join.who = {0, 1};
  one.on(worker_event::Start{join});
  one.receive(Welcome{{1, 1}, ""});
  one.receive(Freeze{kFirst});
  one.receive(Committed{OneWorker::plan(PlanKind::kFresh, kFirst, {}, 4, BeginAt::kGather)});
  return one;
}

TEST_CASE("worker: from a checkpoint it loads what it holds, and gathers the other parameters") {
  OneWorker one = told_of_a_restart();
  const auto asked = OneWorker::among<Initialise>(one.all);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].version == 4);
  CHECK(asked[0].segments == std::vector<bool>{true, true, true});
  StepRecord record;
  record.version = 3;
  record.loss = 0.5;
  one.forget();
  one.on(worker_event::Initialised{kFirst, record});
  CHECK(one.count<StartGather>() == 0);  // not before all connections stand
  one.on(worker_event::Connected{kFirst});
  CHECK(one.worker.version() == 4);
  const auto gather = OneWorker::among<StartGather>(one.all);
  REQUIRE(gather.size() == 1);
  CHECK(gather[0].version == 4);
  CHECK(gather[0].record == record);
  for (const auto& hold : OneWorker::among<Hold>(one.all)) CHECK(!hold.fresh);  // not from the seed
  CHECK(one.count<Compute>() == 1);
  one.own_share(4);
  CHECK(one.count<EndShare>() == 0);
  one.on(worker_event::Gathered{kFirst, 4});
  CHECK(one.count<EndShare>() == 1);
}

TEST_CASE("worker: it tells of a damaged checkpoint, and stops") {
  OneWorker one = told_of_a_restart();
  one.forget();
  one.on(worker_event::NotInitialised{kFirst, "shard-1 is damaged", false});
  const auto told = one.said<Unloadable>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].version == 4);
  CHECK(told[0].reason == "shard-1 is damaged");
  one.on(worker_event::Stopped{kFirst});
  REQUIRE(one.said<Report>().size() == 1);
  CHECK(one.said<Report>()[0].version == kNoVersion);
  CHECK(one.count<Exit>() == 0);
}

TEST_CASE("worker: one that does not reach the shared storage ends with a clear line") {
  OneWorker one = told_of_a_restart();
  one.on(worker_event::NotInitialised{kFirst, "cannot read /shared", true});
  const auto exits = OneWorker::among<Exit>(one.all);
  REQUIRE(exits.size() == 1);
  CHECK(exits[0].code == 2);
  CHECK(exits[0].reason == "cannot read /shared");
}

}  // namespace
}  // namespace starling::elastic
