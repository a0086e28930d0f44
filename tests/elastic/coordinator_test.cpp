// What a coordinator tells beyond what its leader does.

#include "elastic/membership/coordinator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/codec.h"

namespace starling::elastic {
namespace {

// One coordinator, of a group of one unless said otherwise, whose disk answers at once.
struct Alone {
  explicit Alone(HardState state = {}, std::vector<RaftEntry> entries = {}, RaftSnapshot begin = {},
                 CoordinatorConfig config = {}) {
    config.raft.election_ms = 150;
    if (config.leader.job_hash == 0) config.leader.job_hash = 7;
    config.job.job_hash = config.leader.job_hash;
    config.leader.job_text = "the job";
    coordinator.emplace(std::move(config), std::move(state), std::move(entries), std::move(begin));
  }
  void on(const CoordinatorEvent& event) {
    for (auto& command : coordinator->on(event)) {
      if (auto* answer = std::get_if<coordinator_command::SendWorker>(&command)) {
        if (const auto* noted = std::get_if<Noted>(&answer->body)) {
          notes.emplace_back(noted->version, steps());
        } else if (const auto* welcome = std::get_if<Welcome>(&answer->body)) {
          welcomes.push_back(*welcome);
        }
      }
      if (auto* fail = std::get_if<coordinator_command::Fail>(&command)) failed = fail->reason;
      if (const auto* refuse = std::get_if<coordinator_command::RefuseJob>(&command))
        refused.emplace_back(refuse->of_log, refuse->of_file);
      if (const auto* answer = std::get_if<coordinator_command::SendWorker>(&command))
        if (std::holds_alternative<Ended>(answer->body)) ++ends;
      if (auto* tell = std::get_if<coordinator_command::Tell>(&command))
        told.push_back(std::move(*tell));
      if (const auto* persist = std::get_if<coordinator_command::Persist>(&command)) {
        if (persist->hard_state) kept = *persist->hard_state;
        if (persist->snapshot) {
          snapshot = *persist->snapshot;
          log.clear();
        }
        for (const RaftEntry& entry : persist->append) log.push_back(entry);
        if (disk_answers) on(coordinator_event::Persisted{});
      }
    }
  }
  std::size_t steps() const { return events<event::StepPassed>().size(); }
  std::vector<const event::LeaderElected*> leads() const { return events<event::LeaderElected>(); }
  template <class Kind>
  std::vector<const Kind*> events() const {
    std::vector<const Kind*> found;
    for (const auto& tell : told)
      if (const auto* event = std::get_if<Kind>(&tell.event)) found.push_back(event);
    return found;
  }

  std::optional<Coordinator> coordinator;
  std::vector<coordinator_command::Tell> told;
  std::vector<std::pair<Version, std::size_t>> notes;  // and the steps that were told before
  std::vector<std::pair<std::uint64_t, std::uint64_t>> refused;
  std::size_t ends = 0;  // answers that say that the job is over
  bool disk_answers = true;
  std::vector<Welcome> welcomes;
  HardState kept;
  RaftSnapshot snapshot;
  std::string failed;
  std::vector<RaftEntry> log;
};

}  // namespace

// Goal: people hear that a majority is away, as nothing else says so, and that it is back.
TEST_CASE(
    "coordinator: without a leader for ten seconds it says so, once, and again when there is one") {
  CoordinatorConfig config;
  config.raft.size = 3;
  Alone one({}, {}, {}, config);
  for (std::uint64_t ms = 1; ms < 10'000; ms += 10) one.on(coordinator_event::Tick{ms});
  CHECK(one.events<event::Warning>().empty());
  for (std::uint64_t ms = 10'001; ms < 60'000; ms += 10) one.on(coordinator_event::Tick{ms});
  auto warnings = one.events<event::Warning>();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0]->text.starts_with(
      "coordinator-0: no leader for 10 s, as 2 of the 3 coordinators"));
  RaftMessage append;
  append.from = 1;
  append.term = 1;
  one.on(coordinator_event::RaftArrived{1, append});
  one.on(coordinator_event::Tick{60'010});
  warnings = one.events<event::Warning>();
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[1]->text == "coordinator-0: a leader is there again");
}

// Goal: a worker needs no job file of its own. Method: it asks a coordinator that does not lead
// yet, and one that does; asking makes it no member.
TEST_CASE("coordinator: who does not know the job is told it, whoever leads") {
  Alone one;
  const Incarnation asker{0, 9};
  Join question;
  question.who = asker;
  one.on(coordinator_event::WorkerSaid{asker, "worker-0", question});
  REQUIRE(one.welcomes.size() == 1);
  CHECK(one.welcomes[0].who == asker);
  CHECK(one.welcomes[0].job_text == "the job");
  for (std::uint64_t now = 0; now < 1000; now += 10) one.on(coordinator_event::Tick{now});
  REQUIRE(one.coordinator->leads());
  one.on(coordinator_event::WorkerSaid{asker, "worker-0", question});
  CHECK(one.welcomes.size() == 2);
  CHECK(one.coordinator->group().workers().empty());
}

// Goal: an end by a signal reaches the log whoever leads when it comes. Method: it is told before
// this coordinator leads.
TEST_CASE("coordinator: a run that is told to end has ended in order, and says so") {
  Alone one;
  one.on(coordinator_event::EndRun{2, "ended by SIGINT"});
  for (std::uint64_t now = 0; now < 1000; now += 10) one.on(coordinator_event::Tick{now});
  const auto ended = one.events<event::Ended>();
  REQUIRE(ended.size() == 1);
  CHECK(*ended[0] == event::Ended{2, 0, std::nullopt, "ended by SIGINT"});
  CHECK(one.events<event::Failed>().empty());
}

// Goal: of coordinators without a log none waits for one that has ended. Method: two others ask, as
// those do that have lost theirs; the first goes on answering for a while.
TEST_CASE("coordinator: where nobody has a log each one ends, and answers before") {
  CoordinatorConfig config;
  config.raft.size = 3;
  Alone one({.lost = true}, {}, {}, std::move(config));
  std::uint64_t now = 10;
  const auto ticks = [&](std::uint64_t until) {
    for (; now < until; now += 10) one.on(coordinator_event::Tick{now});
  };
  const auto asked_by = [&](std::uint32_t other) {
    RaftMessage ask{RaftKind::kRecall, other, 0, /*term=*/0};
    ask.round = 1;
    one.on(coordinator_event::RaftArrived{other, ask});
  };
  asked_by(1);
  ticks(10000);
  CHECK(one.failed.empty());  // the third may have one
  asked_by(2);
  ticks(12000);
  CHECK(one.failed.empty());
  ticks(14000);
  CHECK(one.failed.find("--new") != std::string::npos);
}

// Goal: from outside one can know which process leads, and for how long nobody may.
// Method: two lives of a group of one.
TEST_CASE("coordinator: who begins to lead says so, once a term") {
  Alone first;
  for (std::uint64_t ms = 1; ms < 500; ms += 10) first.on(coordinator_event::Tick{ms});
  REQUIRE(first.leads().size() == 1);
  CHECK(first.leads()[0]->term == 1);
  CHECK(first.leads()[0]->coordinator == 0);
  CHECK(first.leads()[0]->election_ms == 150);

  Alone second(first.kept, first.log);
  CHECK(second.leads().empty());
  for (std::uint64_t ms = 1; ms < 500; ms += 10) second.on(coordinator_event::Tick{ms});
  REQUIRE(second.leads().size() == 1);
  CHECK(second.leads()[0]->term == 2);
}

Join join_of(std::uint64_t nonce, const std::string& name) {
  Join join;
  join.who = {0, Nonce(nonce)};
  join.name = name;
  join.fingerprint = {1, 1};
  join.job_hash = 7;
  return join;
}

// One that leads, or one that follows; worker-1 (nonce 1) is in the log of either.
void with_worker(Alone& one, bool leads) {
  if (leads) {
    for (std::uint64_t ms = 1; ms < 500; ms += 10) one.on(coordinator_event::Tick{ms});
    one.on(coordinator_event::WorkerSaid{{0, 1}, "worker-1", join_of(1, "worker-1")});
  } else {
    RaftMessage append;
    append.from = 1;
    append.term = 1;
    append.commit = 1;
    append.entries = {{1, 1, encode_entry(Joined{join_of(1, "worker-1")})}};
    one.on(coordinator_event::RaftArrived{1, append});
  }
  REQUIRE(one.leads().size() == (leads ? 1 : 0));
  REQUIRE(one.coordinator->group().find({1, 1}) != nullptr);
}

Progress step_7() {
  Progress progress;
  progress.record.version = 7;
  return progress;
}

// Goal: who is told that a step is noted may forget it.
// Method: a coordinator that does not lead, and one that does.
TEST_CASE("coordinator: a step is noted after observers have it, whoever leads") {
  for (const bool leads : {false, true}) {
    CAPTURE(leads);
    CoordinatorConfig config;
    config.raft.size = leads ? 1 : 3;
    Alone one({}, {}, {}, config);
    with_worker(one, leads);
    one.on(coordinator_event::WorkerSaid{{1, 1}, "worker-1", step_7()});
    CHECK(one.notes == std::vector<std::pair<Version, std::size_t>>{{7, 1}});
  }
}

// Goal: the log stays short, and a restart knows what the whole of it said.
// Method: more joins than a log may have entries; then a second life from what was saved.
TEST_CASE("coordinator: a long log becomes a snapshot, and the next life goes on from it") {
  CoordinatorConfig config;
  config.log_entries_max = 20;
  Alone one({}, {}, {}, config);
  for (std::uint64_t ms = 1; ms < 500; ms += 10) one.on(coordinator_event::Tick{ms});
  for (std::uint64_t nonce = 1; nonce <= 100; ++nonce) {
    one.on(
        coordinator_event::WorkerSaid{{0, Nonce(nonce)}, "worker-1", join_of(nonce, "worker-1")});
    one.on(coordinator_event::WorkerSaid{
        {0, Nonce(nonce)}, "worker-1", Death{{nonce, Nonce(nonce)}, {}, ""}});
    CHECK(one.log.size() <= 25);
  }
  REQUIRE(one.snapshot.data);
  const Bytes state = encode_group(one.coordinator->group().state());
  CHECK(state.size() < 32 * 1024);
  Alone second(one.kept, one.log, one.snapshot);
  for (std::uint64_t ms = 1; ms < 500; ms += 10) second.on(coordinator_event::Tick{ms});
  CHECK(second.leads().size() == 1);
  CHECK(encode_group(second.coordinator->group().state()) == state);
}

// Goal: a proposal that Raft does not take is made again. Method: a Raft that takes one at a time,
// and a disk that answers late, so that the joins of all but the first find it full.
TEST_CASE("coordinator: a proposal that was refused for want of room is made again") {
  CoordinatorConfig config;
  config.raft.size = 1;
  config.raft.uncommitted_max = 1;
  Coordinator one(config, {}, {});
  bool asked = false;
  const auto on = [&](const CoordinatorEvent& event) {
    for (const auto& command : one.on(event))
      asked = asked || std::holds_alternative<coordinator_command::Persist>(command);
  };
  for (std::uint64_t ms = 1; ms < 500; ms += 10) {
    on(coordinator_event::Tick{ms});
    while (std::exchange(asked, false)) on(coordinator_event::Persisted{});
  }
  REQUIRE(one.leads());
  for (std::uint64_t nonce = 1; nonce <= 5; ++nonce) {
    Join join = join_of(nonce, "worker-" + std::to_string(nonce));
    join.job_hash = 0;
    on(coordinator_event::WorkerSaid{{0, Nonce(nonce)}, join.name, join});
  }
  while (std::exchange(asked, false)) on(coordinator_event::Persisted{});
  CHECK(one.group().workers().size() == 5);
}

// Goal: a lone coordinator whose folder was emptied does not begin another job over the old one.
TEST_CASE("coordinator: the only one of its group refuses to go on without its log") {
  HardState lost;
  lost.lost = true;
  Alone one(lost);
  for (std::uint64_t ms = 1; ms < 500; ms += 10) one.on(coordinator_event::Tick{ms});
  CHECK(one.failed.find("--new") != std::string::npos);
  CHECK(one.leads().empty());
  CHECK(one.log.empty());
}

// Goal: nothing is decided after Raft has stepped down. Method: a leader of three that nobody
// answers, and a tick in which it loses its group and its lease over a member would be over.
TEST_CASE("coordinator: the tick in which Raft steps down decides nothing") {
  CoordinatorConfig config;
  config.raft.size = 3;
  config.raft.election_ms = 100;
  config.leader.wanted_workers = 1;
  config.leader.elastic.start_timeout_ms = 50;
  Coordinator one(config, {}, {});
  std::vector<CoordinatorCommand> done;
  const auto on = [&](const CoordinatorEvent& event) {
    auto commands = one.on(event);
    for (bool more = true; more;) {
      more = false;
      for (const auto& c : std::exchange(commands, {})) {
        done.push_back(c);
        if (!std::holds_alternative<coordinator_command::Persist>(c)) continue;
        for (auto& next : one.on(coordinator_event::Persisted{}))
          commands.push_back(next), more = true;
      }
    }
  };
  const auto answer = [&] {  // both others agree to everything
    for (bool more = true; more;) {
      more = false;
      for (const auto& command : std::exchange(done, {})) {
        const auto* send = std::get_if<coordinator_command::SendRaft>(&command);
        if (!send) continue;
        RaftMessage reply = send->message;
        std::swap(reply.from, reply.to);
        reply.granted = true;
        reply.match = reply.last_index + reply.entries.size();
        reply.entries.clear();
        if (reply.kind == RaftKind::kPreVote)
          reply.kind = RaftKind::kPreVoteReply;
        else if (reply.kind == RaftKind::kVote)
          reply.kind = RaftKind::kVoteReply;
        else if (reply.kind == RaftKind::kAppend)
          reply.kind = RaftKind::kAppendReply;
        else
          continue;
        on(coordinator_event::RaftArrived{reply.from, reply});
        more = true;
      }
    }
  };
  std::uint64_t ms = 1;
  for (; ms < 2000 && !one.leads(); ms += 10) {
    on(coordinator_event::Tick{ms});
    answer();
  }
  REQUIRE(one.leads());
  done.clear();
  on(coordinator_event::Tick{ms + 100000});  // nobody came, and nobody answered
  CHECK(!one.leads());
  for (const auto& command : done)
    CHECK(!std::holds_alternative<coordinator_command::Persist>(command));
}

// A worker of this name and nonce asks for the job.
void ask(Alone& one, std::uint64_t nonce, const std::string& name, std::uint64_t pid) {
  Join question;
  question.who = {0, Nonce(nonce)};
  question.name = "what it says itself";
  question.pid = pid;
  one.on(coordinator_event::WorkerSaid{question.who, name, question});
}

// Goal: people see a worker that needs long to begin. Method: it asks ten times a second until an
// answer reaches it, as it does.
TEST_CASE("coordinator: the one that leads tells once of each process that asks for the job") {
  Alone one;
  with_worker(one, true);
  for (int again = 0; again < 3; ++again) ask(one, 9, "worker-4", 4711);
  ask(one, 10, "worker-4", 4712);  // its next life
  ask(one, 9, "worker-4", 4711);
  const auto preparing = one.events<event::Preparing>();
  REQUIRE(preparing.size() == 2);
  CHECK(*preparing[0] == event::Preparing{"worker-4", 4711});
  CHECK(*preparing[1] == event::Preparing{"worker-4", 4712});
  CHECK(one.welcomes.size() == 6);  // every question is answered; the one that joined had none
}

TEST_CASE("coordinator: one that follows answers who asks for the job, and tells nothing of it") {
  CoordinatorConfig config;
  config.raft.size = 3;
  Alone one({}, {}, {}, config);
  with_worker(one, false);
  ask(one, 9, "worker-4", 4711);
  CHECK(one.welcomes.size() == 1);
  CHECK(one.events<event::Preparing>().empty());
}

TEST_CASE("coordinator: of those that asked for the job it remembers the last 256") {
  Alone one;
  with_worker(one, true);
  const auto told = [&] { return one.events<event::Preparing>().size(); };
  for (std::uint64_t nonce = 1000; nonce < 1256; ++nonce) ask(one, nonce, "worker-4", nonce);
  CHECK(told() == 256);
  ask(one, 1000, "worker-4", 1000);
  CHECK(told() == 256);
  ask(one, 1256, "worker-4", 1256);  // the oldest is forgotten
  ask(one, 1001, "worker-4", 1001);
  CHECK(told() == 257);
  ask(one, 1000, "worker-4", 1000);
  CHECK(told() == 258);
}

// Goal: the key of an observer or of another worker makes no step up; a record that differs from
// the true one would end the run for everybody. Method: as above.
TEST_CASE("coordinator: a step counts only from a worker of the log, under its own key") {
  for (const bool leads : {false, true}) {
    CAPTURE(leads);
    CoordinatorConfig config;
    config.raft.size = leads ? 1 : 3;
    Alone one({}, {}, {}, config);
    with_worker(one, leads);
    one.on(coordinator_event::WorkerSaid{{0, 99}, "client", step_7()});
    one.on(coordinator_event::WorkerSaid{{1, 1}, "client", step_7()});
    one.on(coordinator_event::WorkerSaid{{0, 99}, "worker-1", step_7()});
    one.on(coordinator_event::WorkerSaid{{0, 99}, "client", Notice{"aws", "going", 5, true}});
    CHECK(one.notes.empty());
    CHECK(one.steps() == 0);
    CHECK(one.events<event::NoticeGiven>().empty());
  }
}

// Goal: what was measured is told by the one that leads alone, and one can tell whose word it is.
TEST_CASE("coordinator: a worker that joined is told by all, by one that follows as of its log") {
  for (const bool leads : {true, false}) {
    CAPTURE(leads);
    CoordinatorConfig config;
    config.raft.size = leads ? 1 : 3;
    Alone one({}, {}, {}, config);
    with_worker(one, leads);
    std::size_t joined = 0;
    for (const auto& tell : one.told) {
      const bool worker = std::holds_alternative<event::WorkerChanged>(tell.event);
      CHECK(tell.of_log == (worker && !leads));
      joined += worker;
    }
    CHECK(joined == 1);
  }
}

// Goal: a log that is another job's says nothing of this one, its end least of all.
// Method: the log of an ended job is given to a coordinator whose job file has another hash.
TEST_CASE("coordinator: the log of another job is refused, and nothing follows") {
  Alone first;
  for (std::uint64_t ms = 1; ms < 500; ms += 10) first.on(coordinator_event::Tick{ms});
  auto log = first.log;
  JobEnded end;
  end.version = 20;
  log.push_back({log.back().index + 1, log.back().term, encode_entry(end)});

  for (const std::uint64_t hash : {7, 8}) {
    CAPTURE(hash);
    CoordinatorConfig config;
    config.leader.job_hash = hash;
    Alone again(first.kept, log, {}, config);
    for (std::uint64_t ms = 1; ms < 500; ms += 10) again.on(coordinator_event::Tick{ms});
    again.on(coordinator_event::WorkerSaid{{1, 1}, "worker-1", Join{}});
    const bool other = hash != 7;
    using Refused = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
    CHECK(again.refused == (other ? Refused{{7, 8}} : Refused{}));
    CHECK(again.ends == (other ? 0 : 1));
    CHECK(again.told.empty() == other);
  }
}

// Goal: a disk that hangs under the log holds up what is decided, not what is answered.
// Method: the disk of a leader stops answering; a worker joins, which has to be written, and tells
// of steps.
TEST_CASE("coordinator: steps are told and noted while the log's disk does not answer") {
  Alone one;
  with_worker(one, /*leads=*/true);
  one.disk_answers = false;
  one.on(coordinator_event::WorkerSaid{{0, 5}, "worker-5", join_of(5, "worker-5")});
  const std::size_t written = one.log.size();
  for (Version v = 0; v < 3; ++v) {
    Progress progress;
    progress.record.version = v;
    one.on(coordinator_event::WorkerSaid{{1, 1}, "worker-1", progress});
    one.on(coordinator_event::Tick{600 + v});
  }
  CHECK(one.notes == std::vector<std::pair<Version, std::size_t>>{{0, 1}, {1, 2}, {2, 3}});
  CHECK(one.log.size() == written);  // one write at a time
}

}  // namespace starling::elastic
