#include "tools/chaos/cast.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/judge/stories.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {

TEST_CASE("who was left out while it slept or was cut off has to be gone afterwards") {
  const judge::Story story = judge::beginning()
                                 .steps(0, 3)
                                 .epoch(1.5, "1.2", "1.1", "forced", 3, {1, 2})
                                 .steps(3, 5)
                                 .story();
  const FaultKind* kind = nullptr;
  SUBCASE("stopped") {
    kind = &faults::kStop;
  }
  SUBCASE("cut off") {
    kind = &faults::kPartition;
  }
  const std::vector<judge::Deed> slept = {judge::deed(kind, 1.25, 3, /*until_t=*/1.6)};
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
  const auto back_before = revenants_of(story, {judge::deed(kind, 1.25, 3, 1.4)}, {});
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
    event::EpochFormed epoch;
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
  const judge::Story story = judge::beginning().story();
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
  const judge::Story story = judge::beginning().story();
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
