#include "actors/scheduling.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace starling::actors {
namespace {

int niceness() {
  return ::getpriority(PRIO_PROCESS, 0);
}

// Returns what `check` says in a process of its own, which is nicer than this one by so much.
template <class Check>
int in_a_process(int nicer, Check check) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpriority(PRIO_PROCESS, 0, niceness() + nicer);
    ::_exit(check());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("scheduling: a process stays as nice as it was started") {
  for (const int nicer : {0, 3}) {
    CAPTURE(nicer);
    CHECK(in_a_process(nicer, [] {
            run_promptly();
            return niceness();
          }) == std::min(niceness() + nicer, 19));
  }
}

TEST_CASE("scheduling: a thread that lets others go first is nicer than its process") {
  for (const int nicer : {0, 5, 15}) {
    CAPTURE(nicer);
    CHECK(in_a_process(nicer, [] {
            run_promptly();
            int there = 0;
            std::thread([&] {
              run_behind();
              run_behind();
              there = niceness();
            }).join();
            return there;
          }) == std::min(niceness() + nicer + 10, 19));
  }
}

TEST_CASE("scheduling: a policy that was asked for stays") {
  CHECK(in_a_process(0, [] {
          const sched_param none{};
          ::sched_setscheduler(0, SCHED_BATCH, &none);
          run_promptly();
          return ::sched_getscheduler(0);
        }) == SCHED_BATCH);
}

}  // namespace starling::actors
