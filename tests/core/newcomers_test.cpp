#include "core/observe/newcomers.h"

#include <doctest/doctest.h>

namespace starling {
namespace {

using std::chrono::seconds;

constexpr Newcomers::Clock::time_point kStart{};

event::WorkerChanged changed(WorkerChange what, const char* name) {
  return {5, what, name, 1};
}

}  // namespace

TEST_CASE("newcomers: a worker counts from the time that it prepares until it has joined") {
  Newcomers newcomers;
  CHECK(newcomers.count(kStart) == 0);
  newcomers.take(event::Preparing{"worker-1", 10}, kStart);
  newcomers.take(event::Preparing{"worker-2", 11}, kStart);
  CHECK(newcomers.count(kStart) == 2);
  newcomers.take(changed(WorkerChange::kJoined, "worker-3"));  // it was not told to prepare
  CHECK(newcomers.count(kStart) == 2);
  newcomers.take(changed(WorkerChange::kJoined, "worker-1"));
  CHECK(newcomers.count(kStart) == 1);
}

TEST_CASE("newcomers: two processes of one name, one after the other, are one worker") {
  Newcomers newcomers;
  newcomers.take(event::Preparing{"worker-1", 10}, kStart);
  newcomers.take(event::Preparing{"worker-1", 12}, kStart);
  CHECK(newcomers.count(kStart) == 1);
}

// The loss of a silent process may be told after the next process of its name has begun to prepare.
TEST_CASE("newcomers: the end of an older life changes nothing") {
  Newcomers newcomers;
  newcomers.take(event::Preparing{"worker-1", 10}, kStart);
  for (const auto what : {WorkerChange::kLost, WorkerChange::kLeft, WorkerChange::kFenced}) {
    newcomers.take(changed(what, "worker-1"));
    CHECK(newcomers.count(kStart) == 1);
  }
}

TEST_CASE("newcomers: one that does not join in two minutes counts no more, unless it asks again") {
  Newcomers newcomers;
  newcomers.take(event::Preparing{"worker-1", 10}, kStart);
  newcomers.take(event::Preparing{"worker-2", 11}, kStart + seconds(60));
  CHECK(newcomers.count(kStart + seconds(119)) == 2);
  CHECK(newcomers.count(kStart + seconds(120)) == 1);
  newcomers.take(event::Preparing{"worker-1", 12}, kStart + seconds(130));
  CHECK(newcomers.count(kStart + seconds(179)) == 2);
  CHECK(newcomers.count(kStart + seconds(180)) == 1);
  CHECK(newcomers.count(kStart + seconds(250)) == 0);
}

}  // namespace starling
