// Words of actors for a thread that is none of theirs, and a wall clock that is set back meanwhile.

#include "actors/inbox.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <time.h>

#include <atomic>
#include <thread>

#include "actors/messages.h"
#include "actors/system.h"

namespace {
std::atomic<long> ahead_s{0};  // the wall clock of this whole test program
}

// In the place of the C library's, for everything that this program links to.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  using Read = int (*)(clockid_t, timespec*);
  static const auto read = reinterpret_cast<Read>(::dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = read(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += ahead_s.load();
  return result;
}

namespace starling::actors {
namespace {

using std::chrono::milliseconds;

WorkerOver over_with(int code) {
  WorkerOver over;
  over.code = code;
  return over;
}

struct InboxRig {
  caf::actor_system_config config = make_system_config();
  caf::actor_system system{config};
  ThreadInbox<WorkerOver> inbox{system};
};

TEST_CASE("inbox: words come in their order, and the end of who is watched after them") {
  InboxRig rig;
  const caf::actor speaker =
      rig.system.spawn([to = rig.inbox.address()](caf::event_based_actor* self) -> caf::behavior {
        return {[=](int code) {
          self->send(to, over_with(code));
          self->quit();
        }};
      });
  rig.inbox.watch(speaker);
  caf::anon_send(rig.inbox.address(), over_with(1));
  auto first = rig.inbox.take(milliseconds(60000));
  REQUIRE(first.has_value());
  CHECK(std::get<WorkerOver>(*first).code == 1);
  CHECK_FALSE(rig.inbox.take(milliseconds(0)).has_value());
  caf::anon_send(speaker, 2);
  auto second = rig.inbox.take(milliseconds(60000));
  REQUIRE(second.has_value());
  CHECK(std::get<WorkerOver>(*second).code == 2);
  auto third = rig.inbox.take(milliseconds(60000));
  REQUIRE(third.has_value());
  CHECK(std::holds_alternative<WatchedEnded>(*third));
}

// A wait by the system clock that begins while that is ten minutes ahead would take ten minutes.
TEST_CASE("inbox: a wall clock that is set back during a wait makes it no longer") {
  InboxRig rig;
  ahead_s = 600;
  std::thread sets_back([] {
    std::this_thread::sleep_for(milliseconds(20));
    ahead_s = 0;
  });
  const auto began = std::chrono::steady_clock::now();
  CHECK_FALSE(rig.inbox.take(milliseconds(200)).has_value());
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(300));
  sets_back.join();
}

}  // namespace
}  // namespace starling::actors
