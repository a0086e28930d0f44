// Ranks in processes of their own, which are killed.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/nccl/fake_orders.h"
#include "tests/nccl/process.h"

namespace starling::collectives {
namespace {

using Group = std::vector<Process*>;

void connect(const Group& group, std::size_t bytes = 1u << 20) {
  const std::string id = group[0]->ask("id");
  for (std::size_t rank = 0; rank < group.size(); ++rank)
    group[rank]->say("connect " + std::to_string(rank) + " " + std::to_string(group.size()) + " " +
                     id + " " + std::to_string(bytes));
}

void all_say(const Group& group, const std::string& line) {
  for (Process* process : group) process->say(line);
}

void all_hear(const Group& group, const std::string& line, const std::string& answer) {
  all_say(group, line);
  for (Process* process : group) CHECK(process->hear() == answer);
}

void round_is_right(const Group& group, const std::string& round) {
  all_say(group, "exchange " + round);
  all_hear(group, "next", "round");
  all_hear(group, "right " + round, "right");
}

TEST_CASE("two to four processes exchange what they ask for") {
  Process a, b, c, d;
  for (const Group& group : {Group{&a, &b}, Group{&c, &a, &b}, Group{&b, &d, &a, &c}}) {
    connect(group);
    all_hear(group, "next", "ready");
    round_is_right(group, "1 1");
    round_is_right(group, "300000 2");
  }
  for (Process* process : {&a, &b, &c, &d}) CHECK(process->end() == 0);
}

// NCCL tells no rank of a dead peer. The test gives the survivors' transport up and makes the next
// one, without the dead process.
TEST_CASE("a process that is killed in a round, with half of it sent, stops nobody for long") {
  Process a, b({.orders = "die@3"}), c;
  connect({&a, &b, &c});
  all_hear({&a, &b, &c}, "next", "ready");
  round_is_right({&a, &b, &c}, "1000 1");
  all_say({&a, &b, &c}, "exchange 300000 2");
  CHECK(b.status() == 128 + SIGKILL);
  all_say({&a, &c}, "drop");
  connect({&c, &a});
  all_hear({&a, &c}, "next", "ready");
  round_is_right({&c, &a}, "300000 3");
}

TEST_CASE(
    "a process that is killed between rounds, or while a transport is made, stops nobody for "
    "long") {
  Process a, b, c;
  connect({&a, &b, &c});
  all_hear({&a, &b, &c}, "next", "ready");
  b.kill();
  all_say({&a, &c}, "exchange 300000 1");
  all_say({&a, &c}, "drop");
  Process d({.orders = "hang-init@1"});
  connect({&a, &c, &d});
  d.kill();
  Process e;
  connect({&e, &a, &c});
  all_hear({&e, &a, &c}, "next", "ready");
  // With the process that made the id.
  round_is_right({&e, &a, &c}, "300000 2");
  const std::string id = e.ask("id");
  e.kill();
  a.say("connect 1 2 " + id + " 1000");
  connect({&c, &a});
  all_hear({&a, &c}, "next", "ready");
  round_is_right({&c, &a}, "300000 3");
  for (Process* process : {&a, &c}) CHECK(process->end() == 0);
}

TEST_CASE("a communicator that does not end leaves its process alive, without transports") {
  struct Case {
    std::string name, orders, limits;
    bool stands = true, asks = true, given_up = true;
  };
  const std::string patient = "120000 120000 300";
  const Case cases[] = {
      {"an abort that blocks for ever", "hang-abort@1", patient},
      {"a revoke that blocks for ever", "hang-revoke@1", patient},
      {"an abort before it stands", "hang-init@1,hang-abort@1", patient, false, false},
      {"the same after a time limit", "hang-init@1,hang-abort@1", "300 120000 300", false, false,
       false},
      {"a launch that does not return", "hang-call@2", patient},
      {"the same, and nobody gives it up", "hang-call@2", "120000 300 300", true, true, false},
      {"an abort after an error, while nothing is asked for", "error-later@1,hang-abort@1", patient,
       true, false, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Process a({.orders = c.orders, .limits = c.limits}), b;
    connect({&a, &b});
    if (c.stands) {
      all_hear({&a, &b}, "next", "ready");
    } else {
      CHECK(a.ask("begun 1") == "begun");
    }
    if (c.asks) {
      all_say({&a, &b}, "exchange 1000 1");
      CHECK(a.ask("groups 2") == "groups");
    }
    if (c.given_up) a.say("drop");
    CHECK(a.ask("closed") ==
          "NCCL: a communicator has not ended within 300 ms, so this process has no device "
          "transport any "
          "more");
    CHECK(a.end() == 0);
    CHECK(a.complaints() == "");
  }
}

// As libraries of before 2.23 do, and as one does whose peer is frozen.
TEST_CASE("an abort that waits for a frozen peer leaves its process alive") {
  Process a({.orders = "abort-waits-for-peers@*", .limits = "120000 120000 300"}), b;
  connect({&a, &b});
  all_hear({&a, &b}, "next", "ready");
  b.freeze();
  a.say("drop");
  CHECK(a.ask("closed").starts_with("NCCL: a communicator has not ended within 300 ms"));
  CHECK(a.end() == 0);
}

// The stand-in is strict, or its order would show little: without gates the process that gives a
// transport up first takes the memory that its peer's kernel works on.
TEST_CASE("a peer's kernel does not live through an abort, but through a kill") {
  Process a, b({.orders = "fault@*"}), c;
  connect({&a, &b, &c});
  all_hear({&a, &b, &c}, "next", "ready");
  all_say({&a, &b}, "exchange 300000 1");
  CHECK(b.ask("groups 2") == "groups");
  c.kill();
  CHECK(b.ask("roots") == "0");
  a.say("drop");
  CHECK(b.status() == fake::kFaultStatus);
  CHECK(b.complaints() ==
        "fake NCCL: illegal memory access: rank 0 freed what a kernel of rank 1 works on\n");
}

TEST_CASE("an abort that takes its time is waited for") {
  Process a({.orders = "slow-abort@*:400,slow-revoke@*:300"}), b;
  for (int turn = 0; turn < 2; ++turn) {
    connect({&a, &b});
    all_hear({&a, &b}, "next", "ready");
    round_is_right({&a, &b}, "1000 1");
  }
  CHECK(a.end() == 0);
}

// The stand-in is strict, or these tests would show little.
TEST_CASE("rounds that do not match end a process of the stand-in's") {
  Process a, b;
  connect({&a, &b});
  all_hear({&a, &b}, "next", "ready");
  a.say("exchange 1000 1");
  b.say("exchange 999 1");
  CHECK(a.status() == fake::kMisusedStatus);
  CHECK(a.complaints() == "fake NCCL: rank 1 sent 999 bytes, rank 0 takes 1000\n");
}

struct Seen {
  std::int64_t threads = 0, files = 0, rss_kb = 0, roots = 0;
};

Seen figures_of(Process& process) {
  CHECK(process.ask("rest") == "rest");
  std::istringstream words(process.ask("figures"));
  Seen seen;
  words >> seen.threads >> seen.files >> seen.rss_kb;
  seen.roots = std::stol(process.ask("roots"));
  return seen;
}

// Goal: a worker lives through any number of epochs. Method: a pair of processes makes, uses and
// drops one transport after the other, some of them in the middle of a round; then threads, files
// and memory are what they were after the first few.
TEST_CASE("many cycles of communicators leave nothing behind") {
  const char* const told = std::getenv("STARLING_NCCL_CYCLES");
  const int cycles = told ? std::atoi(told) : 50;
  constexpr int kFirst = 10;  // until what is taken once has been taken
  REQUIRE(cycles > kFirst);
  Process a, b;
  std::vector<Seen> before;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    if (cycle == kFirst) before = {figures_of(a), figures_of(b)};
    connect({&a, &b});
    all_hear({&a, &b}, "next", "ready");
    round_is_right({&a, &b}, "100000 " + std::to_string(cycle));
    if (cycle % 3 == 0) a.say("exchange 100000 1");
    all_say({&a, &b}, "drop");
  }
  const std::vector<Seen> after{figures_of(a), figures_of(b)};
  for (std::size_t i = 0; i < 2; ++i) {
    MESSAGE("after " << kFirst << " and " << cycles << " cycles: threads " << before[i].threads
                     << " and " << after[i].threads << ", files " << before[i].files << " and "
                     << after[i].files << ", RSS " << before[i].rss_kb << " and " << after[i].rss_kb
                     << " kB");
    CHECK(after[i].threads == before[i].threads);
    CHECK(after[i].files == before[i].files);
    CHECK(after[i].roots == 0);
    CHECK(after[i].rss_kb < before[i].rss_kb + 4096);
  }
}

}  // namespace
}  // namespace starling::collectives
