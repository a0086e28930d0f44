#include "collectives/tcp/mesh.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "collectives/all_reduce.h"
#include "tests/collectives/node.h"

namespace starling::collectives {
namespace {

using Told = Node::Told;

FrameHeader record_header(Version version) {
  FrameHeader header;
  header.version = version;
  return header;
}

SharedBytes pattern(Rank from, Version n, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::uint8_t>(from.value() + n.value() + i * 31);
  return share(std::move(bytes));
}

TEST_CASE("mesh: all stand, whatever the order in which they start") {
  for (std::uint32_t world = 1; world <= 5; ++world) {
    MeshGroup epoch(world);
    epoch.make();
    for (Rank k = 0; k < world; ++k) epoch.nodes[(world - k + 1) % world]->mesh->start();
    for (auto& node : epoch.nodes) {
      node->wait([](const Told& t) { return t.connected; });
      CHECK(node->mesh->connected());
      CHECK(node->mesh->broken().empty());
    }
  }
}

// Sizes from nothing to several socket buffers; both directions at once, from two threads.
TEST_CASE("mesh: frames arrive whole and in the order of their connection") {
  MeshGroup epoch(3);
  SUBCASE("local sockets") {
    epoch.options.local_sockets = true;
  }
  SUBCASE("TCP") {
    epoch.options.local_sockets = false;
  }
  SUBCASE("encrypted") {
    epoch.options.seal = SealRule::kOn;
  }
  SUBCASE("without keys") {
    epoch.options.seal = SealRule::kOff;
  }
  epoch.connect();
  std::mt19937 random(3);
  constexpr Version kFrames = 60;
  std::vector<std::size_t> sizes;
  for (Version v = 0; v < kFrames; ++v)
    sizes.push_back(v % 7 == 0 ? random() % 3'000'000 : v % 3 == 0 ? 0 : random() % 70'000);
  std::vector<std::thread> senders;
  for (Rank r = 0; r < 3; ++r)
    senders.emplace_back([&, r] {
      for (Version v = 0; v < kFrames; ++v)
        epoch.nodes[r]->mesh->send_all(others(r, 3), record_header(v), pattern(r, v, sizes[v]));
    });
  for (auto& sender : senders) sender.join();
  std::uint64_t bytes = 0;  // to each of the two others
  for (const std::size_t size : sizes) bytes += 2 * (sizeof(FrameHeader) + size);
  for (auto& node : epoch.nodes) {
    node->wait([&](const Told& t) { return t.frames.size() == 2 * kFrames; });
    std::vector<Version> next(3);
    for (const auto& [from, frame] : node->told().frames) {
      REQUIRE(frame.header.version == next[from]);
      REQUIRE(*frame.payload == *pattern(from, next[from], sizes[next[from]]));
      ++next[from];
    }
  }
  // The three count together: each frame once as sent, once as received, and under its kind.
  const FrameCounts& counts = *epoch.options.counts;
  CHECK(FrameCounts::in_all(counts.sent) == 3 * bytes);
  CHECK(FrameCounts::in_all(counts.received) == 3 * bytes);
  CHECK(counts.sent[std::size_t(FrameKind::kReady)] == 3 * bytes);
}

TEST_CASE("mesh: what is sent before all stand arrives once they do") {
  MeshGroup epoch(2);
  epoch.make();
  epoch.nodes[0]->mesh->start();
  epoch.nodes[0]->mesh->send(1, record_header(4), pattern(0, 4, 100));
  epoch.nodes[1]->mesh->start();
  epoch.nodes[1]->wait([](const Told& t) { return t.connected && t.frames.size() == 1; });
}

// A peer may dial before this worker knows the plan: the socket waits in the listener.
TEST_CASE("mesh: a dial that comes before the plan is answered when the plan is there") {
  MeshGroup epoch(2);
  epoch.make();
  epoch.nodes[0]->mesh->start();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (epoch.listeners[1]->counters().accepted == 0)
    REQUIRE(std::chrono::steady_clock::now() < until);
  epoch.nodes[1]->mesh->start();
  for (auto& node : epoch.nodes) node->wait([](const Told& t) { return t.connected; });
  CHECK(epoch.listeners[1]->counters().accepted == 1);
}

TEST_CASE("mesh: a peer that closes is named, once, and nothing is delivered after it") {
  MeshGroup epoch(2);
  epoch.connect();
  epoch.nodes[1]->mesh->stop();
  epoch.nodes[0]->wait([](const Told& t) { return t.broken.has_value(); });
  epoch.nodes[0]->mesh->send(1, record_header(1), pattern(0, 1, 100));  // dropped
  const Told told = epoch.nodes[0]->told();
  CHECK(told.broken->first == 1);
  CHECK(told.breaks == 1);
  CHECK(epoch.nodes[0]->mesh->broken() == std::vector<Rank>{1});
  CHECK(!epoch.nodes[1]->told().broken.has_value());
}

TEST_CASE("mesh: one closed peer stops the whole epoch") {
  MeshGroup epoch(4);
  epoch.connect();
  epoch.nodes[2]->mesh->stop();
  for (const Rank r : std::vector<Rank>{0, 1, 3})
    epoch.nodes[r]->wait([](const Told& t) { return t.breaks == 1; });
}

// So no report of another rank, which sees nothing but an end of file, overtakes the cause.
TEST_CASE("mesh: a break is told before another rank can see it") {
  MeshGroup epoch(3);
  epoch.make();
  bool seen = false;
  epoch.nodes[0]->at_break = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    seen = epoch.nodes[1]->told().broken.has_value();
  };
  for (auto& node : epoch.nodes) node->mesh->start();
  FrameHeader flawed;
  flawed.kind = FrameKind::kAlive;  // which carries nothing
  epoch.nodes[2]->mesh->send(0, flawed, pattern(2, 1, 100));
  for (const Rank r : {Rank{0}, Rank{1}})
    epoch.nodes[r]->wait([](const Told& t) { return t.broken.has_value(); });
  CHECK(epoch.nodes[0]->told().broken->first == 2);
  CHECK_FALSE(seen);
}

TEST_CASE("mesh: a peer that does not stand in time is named") {
  MeshGroup epoch(3);
  MeshOptions impatient = epoch.of(0);
  impatient.connect_timeout = std::chrono::milliseconds(150);
  Node first(impatient, *epoch.listeners[0]), third(epoch.of(2), *epoch.listeners[2]);
  first.mesh->start();
  third.mesh->start();
  first.wait([](const Told& t) { return t.broken.has_value(); });
  const Told told = first.told();
  CHECK(!told.connected);
  CHECK(told.broken->first == 1);
  CHECK(told.broken->second.find("did not stand within 150 ms") != std::string::npos);
}

// On most machines this name is ::1 first, at which nobody listens here, and 127.0.0.1 then.
TEST_CASE("mesh: all addresses of a name are dialled, and it is refused when all refuse") {
  MeshGroup epoch(2);
  epoch.options.connect_timeout = std::chrono::hours(1);
  epoch.options.local_sockets = false;
  epoch.options.peers[1].host = "localhost";
  SUBCASE("one listens") {
    epoch.connect();
  }
  SUBCASE("none does") {
    epoch.listeners[1].reset();
    Node first(epoch.of(0), *epoch.listeners[0]);
    first.mesh->start();
    first.wait([](const Told& t) { return t.broken.has_value(); });
    CHECK(first.told().fault == LinkFault::kUnreached);
  }
}

TEST_CASE("mesh: a peer where nobody listens is named at once") {
  MeshGroup epoch(3);
  epoch.options.connect_timeout = std::chrono::hours(1);
  SUBCASE("local sockets") {
    epoch.options.local_sockets = true;
  }
  SUBCASE("TCP") {
    epoch.options.local_sockets = false;
  }
  epoch.listeners[1].reset();
  Node first(epoch.of(0), *epoch.listeners[0]);
  first.mesh->start();
  first.wait([](const Told& t) { return t.broken.has_value(); });
  const Told told = first.told();
  CHECK(told.broken->first == 1);
  CHECK(told.broken->second.find("Connection refused") != std::string::npos);
}

// The thread of rank 2 hangs in what it was given; ranks 0 and 1 have nothing to say to each other,
// and what rank 1 has said waits at rank 0, which does not read. Only the one that hangs is silent.
TEST_CASE(
    "mesh: a connection over which nothing comes breaks, one that is idle or not read does not") {
  MeshGroup epoch(3);
  epoch.options.silence = std::chrono::milliseconds(1500);
  epoch.options.local_sockets = false;
  std::promise<void> over;
  std::atomic<bool> may_read{true};
  std::shared_future<void> hangs = over.get_future().share();
  for (Rank r = 0; r < 3; ++r) {
    MeshOptions options = epoch.of(r);
    if (r == 0) options.may_read = [&] { return may_read.load(); };
    epoch.nodes.push_back(
        std::make_unique<Node>(options, *epoch.listeners[r], [hangs](Node& node, Rank, Frame&) {
          if (node.mesh->self() == 2) hangs.wait();
        }));
  }
  epoch.connect();
  may_read = false;
  epoch.nodes[1]->mesh->send(0, record_header(1), pattern(1, 1, 100));
  epoch.nodes[1]->mesh->send(2, record_header(1), pattern(1, 1, 100));
  for (const Rank r : {Rank{0}, Rank{1}}) {
    epoch.nodes[r]->wait([](const Told& t) { return t.broken.has_value(); });
    const Told told = epoch.nodes[r]->told();
    if (told.fault == LinkFault::kEnded) continue;  // the other one was quicker, and has closed
    CHECK(told.broken->first == 2);
    CHECK(told.fault == LinkFault::kSilent);
    CHECK(told.broken->second.find("nothing came from it for ") == 0);
  }
  CHECK((epoch.nodes[0]->told().broken->first == 2 || epoch.nodes[1]->told().broken->first == 2));
  over.set_value();
}

// R9 rests on this: when stop() has returned no callback runs and nothing more is sent. Every rank
// stops at another point of a flood of frames.
TEST_CASE("mesh: R9, after a stop at any moment no callback runs") {
  for (int round = 0; round < 24; ++round) {
    CAPTURE(round);
    MeshGroup epoch(3);
    epoch.options.local_sockets = round % 2 == 0;
    if (round % 3 == 0) epoch.options.seal = SealRule::kOn;
    epoch.make([](Node& node, Rank from, Frame& frame) {
      if (frame.header.version > 0)
        node.mesh->send(from, record_header(frame.header.version - 1), frame.payload);
    });
    for (auto& node : epoch.nodes) node->mesh->start();
    for (Rank r = 0; r < 3; ++r)
      epoch.nodes[r]->mesh->send_all(others(r, 3), record_header(500),
                                     pattern(r, 1, 1000 * (1 + round % 3)));
    const int enough = round * 20;
    Node& first = *epoch.nodes[round % 3];
    first.wait([&](const Told& t) { return t.callbacks >= enough; });
    first.mesh->stop();
    const int callbacks = first.told().callbacks;
    for (auto& node : epoch.nodes) node->mesh->stop();
    CHECK(first.told().callbacks == callbacks);
    first.mesh->stop();  // again is harmless
  }
}

// R1: LEFT is the last frame; everything before it arrives, end of file after it is no break.
TEST_CASE("mesh: R1, who leaves by a switch flushes, and its end is no break") {
  MeshGroup epoch(3);
  SUBCASE("local sockets") {
    epoch.options.local_sockets = true;
  }
  SUBCASE("TCP") {
    epoch.options.local_sockets = false;
  }
  SUBCASE("encrypted") {
    epoch.options.seal = SealRule::kOn;
  }
  epoch.connect();
  for (Rank r = 0; r < 3; ++r) {
    for (Version v = 0; v < 20; ++v)
      epoch.nodes[r]->mesh->send_all(others(r, 3), record_header(v), pattern(r, v, 400'000));
    epoch.nodes[r]->mesh->leave();
    epoch.nodes[r]->mesh->send_all(others(r, 3), record_header(99), pattern(r, 99, 1));  // dropped
  }
  for (auto& node : epoch.nodes) {
    node->wait([](const Told& t) { return t.drained; });
    const Told told = node->told();
    CHECK(told.frames.size() == 40);
    CHECK(told.left.size() == 2);
    CHECK(!told.broken.has_value());
  }
}

TEST_CASE("mesh: R1, one rank leaves first and may end at once; the others go on without a break") {
  MeshGroup epoch(3);
  epoch.connect();
  epoch.nodes[1]->mesh->leave();
  for (const Rank r : {Rank{0}, Rank{2}})
    epoch.nodes[r]->wait([](const Told& t) { return !t.left.empty(); });
  epoch.nodes[1]->mesh->stop();
  epoch.nodes[0]->mesh->send(2, record_header(5), pattern(0, 5, 100));
  epoch.nodes[0]->mesh->send(1, record_header(5), pattern(0, 5, 100));  // nobody there: dropped
  epoch.nodes[2]->wait([](const Told& t) { return t.frames.size() == 1; });
  for (const Rank r : {Rank{0}, Rank{2}}) epoch.nodes[r]->mesh->leave();
  for (const Rank r : {Rank{0}, Rank{2}}) {
    epoch.nodes[r]->wait([](const Told& t) { return t.drained; });
    CHECK(!epoch.nodes[r]->told().broken.has_value());
  }
}

TEST_CASE("mesh: R1, two epochs of the same workers do not touch each other") {
  MeshGroup old_one(2, {1, 1});
  old_one.connect();
  old_one.options.epoch = {1, 2};
  random_bytes(old_one.options.key);
  Node a(old_one.of(0), *old_one.listeners[0]), b(old_one.of(1), *old_one.listeners[1]);
  a.mesh->start();
  b.mesh->start();
  a.wait([](const Told& t) { return t.connected; });
  b.wait([](const Told& t) { return t.connected; });
  a.mesh->send(1, record_header(7), pattern(0, 7, 10));
  b.wait([](const Told& t) { return t.frames.size() == 1; });
  CHECK(old_one.nodes[1]->told().frames.empty());
  old_one.nodes[0]->mesh->stop();
  old_one.nodes[1]->wait([](const Told& t) { return t.broken.has_value(); });
  a.mesh->send(1, record_header(8), pattern(0, 8, 10));
  b.wait([](const Told& t) { return t.frames.size() == 2; });
  CHECK(!b.told().broken.has_value());
}

TEST_CASE("mesh: a frame longer than the bound breaks the connection") {
  MeshGroup epoch(2);
  epoch.options.frame_bytes_max = 1000;
  epoch.connect();
  epoch.nodes[0]->mesh->send(1, record_header(0), pattern(0, 0, 1001));
  epoch.nodes[1]->wait([](const Told& t) { return t.broken.has_value(); });
  CHECK(epoch.nodes[1]->told().broken->second.find("1001 bytes") != std::string::npos);
}

TEST_CASE("mesh: a peer that does not take what is sent breaks, the queue is bounded") {
  MeshGroup epoch(2);
  epoch.options.queue_bytes_max = 1'000'000;
  std::atomic<bool> go{false};
  epoch.make([&](Node&, Rank, Frame&) { go.wait(false); });  // a reader that hangs
  epoch.connect();
  for (Version v = 0; v < 200; ++v)
    epoch.nodes[0]->mesh->send(1, record_header(v), pattern(0, v, 200'000));
  epoch.nodes[0]->wait([](const Told& t) { return t.broken.has_value(); });
  CHECK(epoch.nodes[0]->told().broken->second == "it does not take what is sent to it");
  go = true;
  go.notify_all();
}

TEST_CASE("mesh: what may not be read waits, and arrives whole once it may") {
  MeshGroup epoch(3);
  std::atomic<bool> may{false};
  epoch.options.may_read = [&] { return may.load(); };
  epoch.make();
  epoch.connect();
  for (Version v = 0; v < 20; ++v)
    epoch.nodes[0]->mesh->send(1, record_header(v), pattern(0, v, 200'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(epoch.nodes[1]->told().frames.empty());
  may = true;
  epoch.nodes[1]->mesh->read_on();
  epoch.nodes[1]->wait([](const Told& t) { return t.frames.size() == 20; });
  for (Version v = 0; v < 20; ++v)
    CHECK(epoch.nodes[1]->told().frames[v].second.header.version == v);
}

TEST_CASE("mesh: an all-reduce over real connections gives the sum of a plain loop") {
  constexpr Rank kWorld = 4;
  constexpr std::size_t n = 300'001;
  MeshGroup epoch(kWorld);
  std::vector<std::vector<std::int32_t>> in(kWorld), out(kWorld, std::vector<std::int32_t>(n));
  std::vector<std::int32_t> sum(n);
  std::mt19937 random(9);
  std::vector<std::unique_ptr<AllReduce>> ranks;
  for (Rank r = 0; r < kWorld; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      in[r].push_back(static_cast<std::int32_t>(random() % 1000));
      sum[i] += in[r][i];
    }
    AllReduceOptions options;
    options.self = r;
    options.world = kWorld;
    ranks.push_back(std::make_unique<AllReduce>(in[r], out[r], options));
  }
  std::mutex mutexes[kWorld];
  std::atomic<bool> failed{false};
  epoch.make([&](Node& node, Rank from, Frame& frame) {
    const Rank self = node.mesh->self();
    const std::lock_guard lock(mutexes[self]);
    if (!ranks[self]->on_frame(from, frame, *node.mesh)) failed = true;
  });
  epoch.connect();
  for (Rank r = 0; r < kWorld; ++r) {
    const std::lock_guard lock(mutexes[r]);
    ranks[r]->start(*epoch.nodes[r]->mesh);
  }
  for (Rank r = 0; r < kWorld; ++r) {
    epoch.nodes[r]->wait([&](const Told&) {
      const std::lock_guard lock(mutexes[r]);
      return ranks[r]->done();
    });
    CHECK(out[r] == sum);
  }
  CHECK(!failed);
}

}  // namespace
}  // namespace starling::collectives
