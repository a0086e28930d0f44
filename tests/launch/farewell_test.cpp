#include "tools/starling/farewell.h"

#include <doctest/doctest.h>

namespace starling::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Farewell::Clock::time_point kTold{};

event::EpochFormed epoch_of(std::initializer_list<std::uint64_t> ids) {
  event::EpochFormed epoch;
  for (const std::uint64_t id : ids) epoch.members.push_back({id, "", false, false});
  return epoch;
}
event::NoticeGiven leave_of(std::uint64_t id) {
  event::NoticeGiven notice;
  notice.id = id;
  notice.leave = true;
  return notice;
}
event::StepPassed step(Version version) {
  event::StepPassed passed;
  passed.record.version = version;
  return passed;
}

Farewell of_two() {
  Farewell farewell;
  farewell.on(epoch_of({1, 2}));
  farewell.on(step(41));
  farewell.told(kTold);
  return farewell;
}

TEST_CASE("farewell: a coordinator that is told alone goes when no worker has followed") {
  Farewell farewell = of_two();
  CHECK_FALSE(farewell.may_go(kTold + seconds(1)));
  CHECK(farewell.may_go(kTold + seconds(2) + milliseconds(1)));
  farewell.on(leave_of(1));  // of one, whose machine alone goes
  CHECK(farewell.may_go(kTold + seconds(2) + milliseconds(1)));
}

TEST_CASE("farewell: it stays for the checkpoint of workers that all leave, and no longer") {
  Farewell farewell = of_two();
  farewell.on(leave_of(1));
  farewell.on(leave_of(2));
  farewell.on(event::CheckpointWritten{40, ""});  // begun before
  CHECK_FALSE(farewell.may_go(kTold + seconds(10)));
  farewell.on(event::CheckpointWritten{42, ""});
  CHECK(farewell.may_go(kTold + seconds(10)));
}

TEST_CASE("farewell: nothing keeps it beyond its time, nor when all workers are gone") {
  Farewell farewell = of_two();
  for (const std::uint64_t id : {1, 2}) farewell.on(leave_of(id));
  CHECK_FALSE(farewell.may_go(kTold + seconds(25)));
  CHECK(farewell.may_go(kTold + seconds(26)));
  event::WorkerChanged gone;
  gone.what = WorkerChange::kLeft;
  gone.id = 1;
  farewell.on(gone);
  gone.id = 2;
  farewell.on(gone);
  CHECK(farewell.may_go(kTold));
}

TEST_CASE("farewell: told twice means at once") {
  Farewell farewell;
  CHECK_FALSE(farewell.told(kTold));
  CHECK(farewell.told(kTold + seconds(1)));
}

}  // namespace
}  // namespace starling::tools
