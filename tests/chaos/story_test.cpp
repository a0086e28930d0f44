#include "tools/chaos/story.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/chaos/stories.h"
#include "tools/chaos/cast.h"
#include "tools/chaos/pauses.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {

TEST_CASE("a story keeps what it is told, twice if it is told twice") {
  const Story story = beginning().steps(0, 2).step(1.3, 1).done('a').story();
  CHECK(story.steps == 5);
  CHECK(story.micro_batches == 2);
  CHECK(story.step_lines.size() == 3);
  CHECK(story.committed().size() == 2);
  CHECK(story.epochs.front().members.size() == 3);
  CHECK(story.done->digest == starling::to_string(Digest{'a', 0}));
  CHECK(story.oddities.empty());
  const auto holders = story.epochs.front().holders_by_segment();
  REQUIRE(holders.size() == 3);
  CHECK(holders[0] == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("a story knows who leads, and who computes nothing any more") {
  const Story story =
      beginning()
          .tell(1.5, event::LeaderElected{3, 2, 77, 300})
          .tell(1.6, event::EpochFormed{{3, 1},
                                        PlanKind::kPrepared,
                                        {1, 1},
                                        {{1, "a", false, true}, {2, "b", false, false}}})
          .story();
  REQUIRE(story.leaders.size() == 1);
  CHECK(story.leaders[0].term == 3);
  CHECK(story.leaders[0].coordinator == 2);
  CHECK(story.leaders[0].pid == 77);
  CHECK(story.leaders[0].election_ms == 300);
  REQUIRE(story.epochs.back().members.size() == 2);
  CHECK(story.epochs.back().members[0].draining);
  CHECK_FALSE(story.epochs.back().members[1].draining);
  CHECK(story.oddities.empty());
}

TEST_CASE("lines that are no event, or not at their place, are kept as odd") {
  for (const char* line :
       {"", "{", "[]", "{\"ev\":\"step\"}", "{\"t\":1,\"ev\":\"step\",\"version\":-1}",
        "{\"t\":1,\"ev\":\"epoch\",\"id\":3}"}) {
    CAPTURE(line);
    Story story = beginning().story();
    story.add(line);
    CHECK(story.oddities.size() == 1);
  }
  CHECK(Tale().steps(0, 1).story().oddities.size() == 2);              // before `start`
  CHECK(beginning().done().steps(0, 1).story().oddities.size() == 2);  // after `done`
}

TEST_CASE("a kind that is not known is nothing odd, at its place") {
  CHECK(beginning().add(R"({"t":1,"ev":"eclipse","sun":0})").story().oddities.empty());
  CHECK(Tale().add(R"({"t":1,"ev":"eclipse"})").story().oddities.size() == 1);
}

// What cannot be a process of this machine must not become one, or all of them.
TEST_CASE("a process id that no process can have is none") {
  const auto story =
      beginning().tell(1, event::WorkerChanged{4, WorkerChange::kJoined, "w", 0xffffffff}).story();
  CHECK(story.workers.back().pid == 0);
}

TEST_CASE("a file that grows is read line by line, as lines are finished") {
  const auto path =
      (std::filesystem::temp_directory_path() / ("starling-tail-" + std::to_string(::getpid())))
          .string();
  Tail tail(path);
  CHECK(tail.lines().empty());
  {
    std::ofstream(path, std::ios::app) << "one\ntw";
    CHECK(tail.lines() == std::vector<std::string>{"one"});
    CHECK(tail.rest() == "tw");
    std::ofstream(path, std::ios::app) << "o\nthree\n";
    CHECK(tail.lines() == std::vector<std::string>{"two", "three"});
    CHECK(tail.rest().empty());
  }
  std::filesystem::remove(path);
}

TEST_CASE("where a pause went: the kill, its epoch, and what is beyond the lost work") {
  const Story story = beginning()
                          .steps(0, 3)
                          .epoch(1.52, "1.2", "1.1", "forced", 3, {1, 2})
                          .step(1.55, 3)
                          .step(1.65, 4)
                          .story();
  const auto pauses = pauses_of(story, {deed(&faults::kKill, 1.25, 3)});
  REQUIRE(pauses.size() == 1);
  CHECK(pauses[0].kill);
  CHECK(pauses[0].alone);
  CHECK(pauses[0].epoch == "1.2");
  CHECK(pauses[0].gap_ms == doctest::Approx(350));
  CHECK(pauses[0].over_ms == doctest::Approx(150));
  CHECK(pauses[0].form_ms == 2);
}

TEST_CASE("faults that are near to each other share a pause") {
  const Story story = beginning().steps(0, 5).story();
  const auto pauses =
      pauses_of(story, {deed(&faults::kKill, 1.25, 3), deed(&faults::kJoin, 1.30, 4)});
  REQUIRE(pauses.size() == 1);
  CHECK_FALSE(pauses[0].alone);
}

TEST_CASE("who was left out while it slept or was cut off has to be gone afterwards") {
  const Story story =
      beginning().steps(0, 3).epoch(1.5, "1.2", "1.1", "forced", 3, {1, 2}).steps(3, 5).story();
  const FaultKind* kind = nullptr;
  SUBCASE("stopped") {
    kind = &faults::kStop;
  }
  SUBCASE("cut off") {
    kind = &faults::kPartition;
  }
  const std::vector<Deed> slept = {deed(kind, 1.25, 3, /*until_t=*/1.6)};
  const auto gone = revenants_of(story, slept, {{103, 1.7}});
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].gone_t == 1.7);
  CHECK(gone[0].epoch == "1.2");
  // Another process had the id before.
  CHECK(revenants_of(story, slept, {{103, 0.2}, {103, 1.7}}).front().gone_t == gone.front().gone_t);
  const auto still_there = revenants_of(story, slept, {});
  REQUIRE(still_there.size() == 1);
  CHECK_FALSE(still_there[0].gone_t.has_value());
  const auto killed_meanwhile = revenants_of(story, slept, {{103, 1.55}});
  CHECK(killed_meanwhile.empty());
  const auto back_before = revenants_of(story, {deed(kind, 1.25, 3, 1.4)}, {});
  CHECK(back_before.empty());
}

// Goal: what is done to a new life is not taken for something done to the one before, which the
// last epoch still names.
// Method: a shell is the guard; one process after the other is its child.
TEST_CASE("a new life is nobody's member until it has joined") {
  const int guard = ::fork();
  if (guard == 0) {
    ::execl("/bin/sh", "sh", "-c", "sleep 600; sleep 600; exit 0", nullptr);
    ::_exit(127);
  }
  const auto child_but = [&](int other) {
    for (;;)
      for (const int pid : children_of(guard))
        if (pid != other) return pid;
  };
  const int first = child_but(0);
  const auto epoch_of = [&](std::uint64_t id) {
    EpochSeen epoch;
    epoch.members.push_back({id, "worker-1"});
    return epoch;
  };
  Cast cast;
  Player& player = cast.add("worker-1", guard, 0);
  cast.look();
  CHECK(player.pid == first);
  cast.learn(epoch_of(3));
  REQUIRE(cast.members().size() == 1);

  ::kill(first, SIGKILL);
  const int second = child_but(first);
  cast.look();
  CHECK(player.pid == second);
  cast.learn(epoch_of(3));
  CHECK(cast.members().empty());
  CHECK(player.target().id == 0);
  cast.learn(epoch_of(4));
  REQUIRE(cast.members().size() == 1);
  CHECK(cast.members()[0]->target().id == 4);
  ::kill(second, SIGKILL);
  ::waitpid(guard, nullptr, 0);
}

TEST_CASE("copies of workers elsewhere count") {
  Cast cast;
  const Story story = beginning().story();
  cast.add("worker-1", 51, 0).pid = 101;
  cast.learn(story.workers[0]);
  cast.learn(story.epochs.front());
  Player* one = cast.find("worker-1");
  CHECK(cast.last_copies({one}));
  for (const std::uint64_t id : {2, 3}) cast.elsewhere(id, true);
  CHECK_FALSE(cast.last_copies({one}));
  cast.elsewhere(2, false);
  CHECK(cast.last_copies({one}));
}

TEST_CASE("the last copies of a segment are known from the placement") {
  Cast cast;
  const Story story = beginning().story();
  for (int id = 1; id <= 3; ++id) {
    cast.add("worker-" + std::to_string(id), 50 + id, 0).pid = 100 + id;
    cast.learn(story.workers[std::size_t(id - 1)]);
  }
  cast.learn(story.epochs.front());
  REQUIRE(cast.members().size() == 3);
  Player *one = cast.find("worker-1"), *two = cast.find("worker-2");
  CHECK_FALSE(cast.last_copies({one}));
  CHECK(cast.last_copies({one, two}));
  two->stopped = true;
  CHECK(cast.last_copies({one}));
  two->stopped = false;
  two->killed = true;
  CHECK(cast.last_copies({one}));
}

}  // namespace starling::chaos
