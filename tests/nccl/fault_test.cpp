// What a transport makes of a library that fails, in one process. A transport that is to end by a
// time limit has a short one, and nothing else could end it: how busy the machine is changes no
// outcome.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/world.h"

namespace starling::collectives {
namespace {

constexpr std::uint32_t kShort = 300;  // ms

const std::string kRemote =
    "a communicator: remote process exited or there was a network error (details of it)";

Table small() {
  return everybody_to_everybody(2, 1000);
}

TEST_CASE("a communicator that never stands is given up in time, and the next one stands") {
  World world(2, {.connect_ms = kShort}, "hang-init@1/1");
  world.begin(1000);
  for (const auto& member : world.members())
    CHECK(member->next() == "failed: NCCL: no communicator of 2 within 300 ms");
  for (const auto& member : world.members()) CHECK(member->told() == 0);
  World next(2);
  next.make(1000);
  next.round_is_right(small(), 1);
}

TEST_CASE("a communicator that does not stand yet is aborted, never revoked") {
  World world(2, {}, "hang-init@1/0");
  world.begin(1000);
  for (const auto& member : world.members()) member->doom();
  for (const auto& member : world.members()) member->await_end();
  for (const auto& member : world.members()) CHECK(member->told() == 0);
  const Counts after = counts();
  CHECK(after.communicators == 0);
  CHECK(after.revoked == 0);
  CHECK(after.aborted == after.begun);
}

TEST_CASE("one that stands is revoked first, so that its kernels end") {
  World world(2);
  world.make(1000);
  const Counts before = counts();
  for (const auto& member : world.members()) member->await_end();
  CHECK(counts().revoked == before.revoked + 2);
  CHECK(counts().aborted == before.aborted + 2);
}

TEST_CASE("errors of a communicator's making are told with NCCL's own words") {
  struct Case {
    std::string orders, told;
  };
  const Case cases[] = {
      {"refuse-init@1/0",
       "failed: ncclCommInitRankConfig: an error of the stand-in (details of it)"},
      {"fail-init@1/0", "failed: making a communicator: an error of the stand-in (details of it)"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.orders);
    World world(2, {}, c.orders);
    world.begin(1000);
    CHECK(world[0].next() == c.told);
    CHECK(world[1].told() == 0);  // it waits for the other, as it would for a dead one
  }
}

TEST_CASE("an id that is none is an error, not a crash") {
  World world(2);
  world[0].connect({0, 2}, Bytes(12), 1000);
  CHECK(world[0].next() == "failed: NCCL: an id of 12 bytes");
}

TEST_CASE("a communicator that carries other bytes than were sent never gets ready") {
  World world(2, {}, "garbage@1/0");
  world.begin(1000);
  CHECK(world[0].next() == "failed: NCCL: the first block of rank 1 is not what that rank sent");
  CHECK(world[1].next() == "ready");
}

// What is received is proven by whoever asked for it.
TEST_CASE("a transport does not look at what a round carries") {
  World world(2, {}, "garbage@2/0");
  world.make(1000);
  world.ask(small(), 1);
  for (const auto& member : world.members()) CHECK(member->next() == "round");
  CHECK(!world[0].right(small(), 1));
  CHECK(world[1].right(small(), 1));
  world.round_is_right(small(), 2);
}

// While a launch is under way nothing is in the stream, which is therefore idle; and it may get there
// between a look at the stream and one at the communicator.
TEST_CASE("a stream that is idle before a round is in it is not taken for the round's end") {
  for (const Place place : {Place::kDevice, Place::kHost}) {
    World world(2, {.place = place}, "late@3:100,late@4:100,lazy@5:100,lazy@6:100");
    world.make(1000);
    world.round_is_right(small(), 1);
    world.round_is_right(small(), 2);
  }
}

TEST_CASE("an error during a round ends the round and the transport; its peer waits") {
  World world(2, {}, "error@2/0");
  world.make(1000);
  world.ask(small(), 1);
  CHECK(world[0].next() == "round: " + kRemote);
  CHECK(world[0].next() == "failed: " + kRemote);
  CHECK(world[1].told() == 0);
  world[0].exchange(small(), 2);  // too late, and harmless
  for (const auto& member : world.members()) member->await_end();
  for (const auto& member : world.members()) CHECK(member->told() == 0);
}

TEST_CASE("an error while nothing is asked for is told all the same") {
  World world(2, {}, "error-later@1/1");
  world.make(1000);
  CHECK(world[1].next() == "failed: " + kRemote);
  CHECK(world[0].told() == 0);
}

TEST_CASE("a group that NCCL refuses ends the transport") {
  World world(2, {}, "refuse@2/1");
  world.make(1000);
  world.ask(small(), 1);
  CHECK(world[1].next() == "round: ncclGroupEnd: an error of the stand-in (details of it)");
  CHECK(world[1].next() == "failed: ncclGroupEnd: an error of the stand-in (details of it)");
}

TEST_CASE("a round that does not end is given up in time, by everybody") {
  World world(2, {.round_ms = kShort}, "hang@2/0");
  world.make(1000);
  world.ask(small(), 1);
  for (const auto& member : world.members()) {
    CHECK(member->next() == "round: a round took longer than 300 ms");
    CHECK(member->next() == "failed: a round took longer than 300 ms");
  }
}

// The stand-in's kernels that are stopped end well, with garbage in the staging memory.
TEST_CASE("after doom() nothing is told, and the garbage of a stopped round goes unseen") {
  World world(2);
  world.make(1000);
  world[0].exchange(small(), 1);  // and its peer never does
  await(&Counts::groups, 3);      // with those of the warm-up
  world[0].doom();
  const std::size_t told = world[0].told();
  while (counts().communicators > 1) std::this_thread::yield();
  CHECK(world[0].told() == told);
  CHECK(told == 0);
  CHECK(!world[0].right(small(), 1));
  CHECK(!world[0].staging_is_zero());
}

// Goal: doom() is a border in every moment. Method: many rounds one after the other, asked for from
// on_round() itself, and a doom from the test's thread at a time that is different each time.
TEST_CASE("doom() at any moment lets nothing be told any more") {
  for (int turn = 0; turn < 30; ++turn) {
    World world(2);
    std::atomic<std::uint64_t> rounds{0};
    for (std::size_t rank = 0; rank < 2; ++rank) {
      Member& member = world[rank];
      member.on_event = [&, rank](const std::string& event) {
        if (event == "ready" || event == "round")
          member.exchange(small(), rank == 0 ? rounds++ : 0);
      };
    }
    world.begin(1000);
    while (rounds < static_cast<std::uint64_t>(turn)) std::this_thread::yield();
    for (const auto& member : world.members()) {
      member->doom();
      const std::size_t told = member->told();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      CHECK(member->told() == told);
    }
  }
}

TEST_CASE("a transport may be given up by its own callback") {
  World world(2);
  world[0].on_event = [&](const std::string&) { world[0].doom(); };
  world.begin(1000);
  CHECK(world[0].next() == "ready");
  CHECK(world[1].next() == "ready");
  world[0].await_end();
  CHECK(world[0].told() == 0);
}

// Goal: nothing of ours is freed while NCCL may use it, and the kernels of a new communicator wait for
// the old one's end. Method: an abort that takes its time; when the staging memory is released that
// abort is over, and nothing was launched since. connect() itself does not wait.
TEST_CASE(
    "a transport keeps its staging memory until its end, for which the next one's kernels wait") {
  World world(2, {}, "slow-abort@1/0:200");
  world.make(1000);
  Member& member = world[0];
  std::atomic<int> released{0};
  std::atomic<std::int64_t> communicators{-1}, groups{-1};
  member.on_release = [&] {
    communicators = counts().communicators;
    groups = counts().groups;
    ++released;
  };
  const Bytes id = member.library().make_id().value();
  member.connect({0, 2}, id, 1000);
  CHECK(released == 0);
  while (released == 0) std::this_thread::yield();
  CHECK(communicators == 1);  // that of the other rank: nothing is made beside one that ends
  CHECK(groups == 2);         // the first transports' warm-up
  world[1].connect({1, 2}, id, 1000);
  CHECK(member.next() == "ready");
  CHECK(world[1].next() == "ready");
  CHECK(released == 1);
  world.round_is_right(small(), 1);
}

TEST_CASE(
    "the next communicator is made while rounds go on, and is used when the transport before is "
    "gone") {
  const Table table = everybody_to_everybody(3, 400);
  World world(3);
  world.make(1000);
  world.round_is_right(table, 1);
  world.begin_beside();
  await(&Counts::begun, 6);
  for (std::uint64_t round = 2; round < 20; ++round) world.round_is_right(table, round);
  for (const auto& member : world.members()) CHECK(member->told() == 0);
  for (const auto& member : world.members()) member->change_over();
  for (const auto& member : world.members()) CHECK(member->next() == "ready");
  CHECK(counts().begun == 6);
  world.round_is_right(table, 20);
}

TEST_CASE("a transport made beside one that breaks is used all the same") {
  World world(2, {}, "error@3/1");
  world.make(1000);
  world.begin_beside();
  await(&Counts::begun, 4);
  world.ask(small(), 1);
  for (const auto& member : world.members()) CHECK(member->next() == "round");
  world.ask(small(), 2);
  CHECK(world[1].next().starts_with("round: "));
  CHECK(world[1].next().starts_with("failed: "));
  for (const auto& member : world.members()) member->change_over();
  for (const auto& member : world.members()) {
    std::string said = member->next();
    while (said.starts_with("round")) said = member->next();
    CHECK(said == "ready");
  }
  world.round_is_right(small(), 3);
}

TEST_CASE(
    "whoever has two transports that do not end gets no third in time, and the first goes on") {
  World world(2, {.connect_ms = 120'000});
  world.make(1000);
  world[0].connect_beside(world[0].library().make_id().value());  // whose other rank does not come
  kernels::EmulatedDevice device;
  TransportOptions options;
  options.id = world[0].library().make_id().value();
  options.stream = device.make_stream();
  options.allocate = [](std::size_t) { return nullptr; };
  options.connect_ms = kShort;
  std::atomic<bool> failed{false};
  std::string text;
  TransportEvents events;
  events.on_ready = [] {};
  events.on_round = [](Result<>) {};
  events.on_failed = [&](Error error) {
    text = error.text();
    failed = true;
  };
  const auto transport = world[0].library().connect(std::move(options), std::move(events));
  while (!failed) std::this_thread::yield();
  CHECK(text == "NCCL: the transports before did not end within 300 ms");
  world.round_is_right(small(), 1);
}

const std::string kStuck =
    "NCCL: a communicator has not ended within 300 ms, so this process has no device transport any "
    "more";

// The stand-in's abort ends at last, so that its counts are right again.
TEST_CASE("whoever opened the library is told of a communicator that does not end, and goes on") {
  std::atomic<std::uint32_t> stuck{0};
  std::string why;
  MemberOptions options{.end_ms = kShort};
  options.on_stuck = [&](const std::string& text, Rank self) {
    why = text;
    stuck = 1 + self.value();
  };
  World world(2, options, "slow-abort@1/1:2000");
  std::atomic<bool> released{false};
  world[1].on_release = [&] { released = true; };
  world.make(1000);
  CHECK(world[1].library().closed().empty());
  world[1].drop();
  while (stuck == 0) std::this_thread::yield();
  CHECK(stuck == 2);
  CHECK(why == kStuck);
  CHECK(world[1].library().closed() == kStuck);
  // No other transport is made or waited for, and what hangs keeps its memory, also when the
  // library goes.
  CHECK(world[1].library().make_id().error().text() == kStuck);
  world[1].connect({0, 2}, world[0].library().make_id().value(), 1000);
  CHECK(world[1].next() == "failed: " + kStuck);
  world[1].await_end();
  CHECK(!released);
  CHECK(world[0].library().closed().empty());
  world[0].await_end();
  while (counts().communicators > 0) std::this_thread::yield();
  CHECK(!released);
}

// Its thread comes back to a transport that was given up as stuck, and stays with it.
TEST_CASE("a late end of a stuck communicator keeps no owner from dropping its transport") {
  std::atomic<bool> stuck{false};
  MemberOptions options{.end_ms = kShort};
  options.on_stuck = [&](const std::string&, Rank) { stuck = true; };
  World world(2, options, "error-later@1/1,slow-abort@1/1:1000");
  world.make(1000);
  CHECK(world[1].next() == "failed: " + kRemote);
  while (!stuck) std::this_thread::yield();
  world[0].drop();
  world[0].await_end();
  while (counts().communicators > 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the thread has come back
  world[1].drop();
  CHECK(world[1].told() == 0);
}

TEST_CASE("a transport that waits for its turn fails when the one before hangs") {
  World world(2, {.end_ms = kShort}, "slow-revoke@1/1:2000");
  world.make(1000);
  world.begin_beside();
  await(&Counts::begun, 4);
  world[1].change_over();
  CHECK(world[1].next() == "failed: " + kStuck);
  for (const auto& member : world.members()) member->await_end();
  while (counts().communicators > 0) std::this_thread::yield();
}

// Goal: nobody's memory goes while a peer's kernel may work on it. Method: the stand-in ends a
// process whose kernel works on what a peer has given back (here, this one); of three ranks in a
// round one never comes, and the others give up one after the other.
TEST_CASE("a transport is taken apart only when the others' kernels have ended") {
  World world(3, {}, "fault@*");
  std::atomic<int> left{0};
  for (const auto& member : world.members()) {
    member->gate = std::make_shared<Gate>();
    member->on_left = [&](bool revoked) { left += revoked ? 1 : 100; };
  }
  world.make(600'000);
  const Table table = everybody_to_everybody(3, 300'000);
  world[0].exchange(table, 1);
  world[1].exchange(table, 1);
  await(&Counts::groups, 5);
  world[0].drop();
  while (left < 1) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  CHECK(counts().aborted == 0);
  world[1].drop();
  world[2].drop();
  while (left < 3) std::this_thread::yield();
  CHECK(counts().aborted == 0);
  for (const auto& member : world.members()) member->gate->open();
  await(&Counts::aborted, 3);
  CHECK(left == 3);
}

TEST_CASE("whoever does not hear of the others takes its transport apart after a while") {
  World world(2, {.connect_ms = 120'000, .leave_ms = kShort});
  world[0].gate = std::make_shared<Gate>();
  world.make(1000);
  world[0].await_end();
  CHECK(counts().aborted == 1);
}

// A thread that gives memory back would wait for kernels that only it can end.
TEST_CASE("while kernels may run nothing is given back, and all of it when they have ended") {
  World world(2);
  world.make(1000);
  std::optional<kernels::Memory> memory = world.device().allocate(1000);
  const std::size_t taken = world.device().pieces();
  memory.reset();
  CHECK(world.device().pieces() == taken);
  for (const auto& member : world.members()) member->await_end();
  CHECK(world.device().pieces() == taken - 3);  // with two transports' staging memory
}

TEST_CASE("a device without memory left is an error of the transport") {
  World world(2);
  kernels::EmulatedDevice device;
  TransportOptions options;
  options.id = world[0].library().make_id().value();
  options.staging_bytes = 1000;
  options.stream = device.make_stream();
  options.allocate = [](std::size_t) -> std::shared_ptr<std::byte> { throw std::bad_alloc(); };
  std::atomic<bool> failed{false};
  std::string text;
  TransportEvents events{[] {},
                         [&](Error error) {
                           text = error.text();
                           failed = true;
                         },
                         [](Result<>) {}};
  options.world = 2;
  world[1].connect({1, 2}, options.id, 1000);
  const auto transport = world[0].library().connect(std::move(options), std::move(events));
  while (!failed) std::this_thread::yield();
  CHECK(text == "NCCL: the device has no 2048 bytes left");
}

}  // namespace
}  // namespace starling::collectives
