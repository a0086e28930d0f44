#include "tools/judge/story.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/judge/stories.h"
#include "tools/judge/pauses.h"

namespace starling::judge {

TEST_CASE("a story keeps what it is told, twice if it is told twice") {
  const Story story = beginning().steps(0, 2).step(1.3, 1).done('a').story();
  CHECK(story.start.steps == 5);
  CHECK(story.start.micro_batches == 2);
  CHECK(story.step_lines.size() == 3);
  CHECK(story.committed().size() == 2);
  CHECK(story.epochs.front().members.size() == 3);
  CHECK(story.done->digest == Digest{'a', 0});
  CHECK(story.oddities.empty());
  const auto holders = holders_by_segment(story.epochs.front());
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
  const auto pauses = pauses_of(story, {deed(&chaos::faults::kKill, 1.25, 3)});
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
  const auto pauses = pauses_of(
      story, {deed(&chaos::faults::kKill, 1.25, 3), deed(&chaos::faults::kJoin, 1.30, 4)});
  REQUIRE(pauses.size() == 1);
  CHECK_FALSE(pauses[0].alone);
}

}  // namespace starling::judge
