// A step over the device transport: the same bits as over the TCP transport, whatever the table,
// the order of frames and rounds, and the size of rounds; and what is wrong with a transport is
// found.

#include <doctest/doctest.h>

#include "tests/collectives/device_group.h"

namespace starling::collectives::device_transport_test {
namespace {

Shape shape_of(std::uint32_t seed) {
  Shape shape;
  shape.world = 1 + seed % 8;
  shape.segments = 1 + seed * 7 % 40;
  shape.copies = 1 + seed / 8 % 4;  // r = 0 to 3
  // From one segment of each owner in a round to all of them.
  shape.round_bytes = std::size_t{1024} << (seed % 11);
  return shape;
}

TEST_CASE(
    "device transport: everybody has totals and parameters, whoever holds what, in any order") {
  std::uint64_t rounds = 0;
  for (std::uint32_t seed = 0; seed < 240; ++seed) {
    CAPTURE(seed);
    Group group(seed, shape_of(seed));
    std::vector<std::vector<std::int32_t>> before;
    for (const auto& node : group.nodes) before.push_back(node->own_sums);
    group.run();
    group.check_all();
    for (Rank r = 0; r < group.shape.world; ++r)
      CHECK(group.nodes[r]->own_sums == before[r]);  // R2
    rounds += group.rounds;
  }
  CHECK(rounds > 1000);
}

TEST_CASE("device transport: bits and lanes are those of the TCP transport") {
  for (std::uint32_t seed = 0; seed < 64; ++seed) {
    CAPTURE(seed);
    Shape shape = shape_of(seed);
    Group direct(seed, shape);
    shape.attempt = 0;
    Group host(seed, shape);
    direct.run();
    host.run();
    CHECK(host.rounds == 0);
    for (Rank r = 0; r < shape.world; ++r) {
      CAPTURE(r);
      const Node &a = *direct.nodes[r], &b = *host.nodes[r];
      CHECK(a.reduced);
      CHECK(b.reduced);
      CHECK(a.all_totals == b.all_totals);
      CHECK(a.all_parameters == b.all_parameters);
      CHECK(a.all_exponents == b.all_exponents);
      for (SegmentId s = 0; s < direct.layout.segments(); ++s)
        if (a.held[s]) CHECK(a.total_lanes[s] == b.total_lanes[s]);
      CHECK(a.received.size() == b.received.size());
    }
  }
}

TEST_CASE("device transport: all frames may come before any round ends") {
  for (std::uint32_t seed = 0; seed < 48; ++seed) {
    CAPTURE(seed);
    Group group(seed, shape_of(seed));
    group.only_frames = true;
    group.run();
    group.check_all();
  }
}

TEST_CASE("device transport: what a round brings waits for the frames that prove it") {
  for (std::uint32_t seed = 0; seed < 48; ++seed) {
    CAPTURE(seed);
    Group group(seed, shape_of(seed));
    group.only_rounds = true;
    group.run();
    for (Rank r = 0; r < group.shape.world; ++r) {
      const auto mine = [&](const auto& row) { return row.front() == r; };
      if (!std::ranges::all_of(group.plan->holders, mine)) CHECK(!group.nodes[r]->gathered);
    }
    group.only_rounds = false;
    while (group.one_soon()) {
    }
    group.check_all();
  }
}

TEST_CASE("device transport: frames carry no words, and a world of one needs no transport") {
  Group group(5, {.world = 4, .segments = 12, .copies = 3});
  for (Rank r = 0; r < 4; ++r) {
    group.begin_step(r);
    group.reduce(r);
  }
  const Layout& layout = group.layout;
  for (Rank from = 0; from < 4; ++from)
    for (Rank to = 0; to < 4; ++to) {
      if (from == to) continue;
      for (const Frame& frame : group.net.queue(from, to)) {
        const SegmentRange run{frame.header.first, frame.header.count};
        CHECK((frame.header.flags & kOnDevice) != 0);
        CHECK(frame.payload->size() < layout.bytes_of(run, What::kParameters) / 4);
      }
    }
  Group alone(5, {.world = 1});
  alone.run();
  alone.check_all();
  CHECK(alone.rounds == 0);
  CHECK(alone.nodes[0]->transport == nullptr);
}

TEST_CASE("device transport: a frame of the other transport is refused, and its sender named") {
  for (const bool receiver_on_device : {false, true}) {
    Shape shape{.world = 2, .segments = 16, .copies = 1};
    shape.attempt = receiver_on_device ? 0 : kAttempt;
    Group sender(4, shape);
    shape.attempt = receiver_on_device ? kAttempt : 0;
    Group receiver(4, shape);
    for (Rank r = 0; r < 2; ++r) {
      sender.begin_step(r);
      receiver.begin_step(r);
    }
    sender.reduce(0);
    receiver.reduce(1);
    for (const FrameKind kind : {FrameKind::kGather, FrameKind::kContribution}) {
      auto& sent = sender.net.queue(0, 1);
      const auto frame =
          std::ranges::find_if(sent, [&](const Frame& f) { return f.header.kind == kind; });
      REQUIRE(frame != sent.end());
      Group fresh(4, shape);
      fresh.begin_step(1);
      fresh.reduce(1);
      fresh.take(1, fresh.nodes[1]->frames->on_frame(0, *frame));
      REQUIRE(fresh.nodes[1]->wrong.has_value());
      CHECK(fresh.nodes[1]->wrong->peer == 0);
      CHECK(fresh.nodes[1]->wrong->error.text().find("of the other transport") !=
            std::string::npos);
    }
  }
}

// ---- Faults -----------------------------------------------------------------------------------

// The fault comes with the n-th round that ends at that rank.
auto nth_round(Rank rank, int n, TransportFault fault) {
  return [=, left = n](Rank at, bool) mutable {
    return at == rank && left-- == 0 ? fault : TransportFault::kNone;
  };
}

// No rank has been told that it has totals, or parameters, which it does not have.
void check_nothing_wrong_is_taken(Group& group) {
  for (const auto& node : group.nodes) {
    if (node->gathered) group.check_parameters(*node);
    for (SegmentId s = 0; s < group.layout.segments(); ++s)
      if (node->written[s])
        CHECK(node->all_parameters[group.layout.first_element(s)] ==
              parameter(group.layout.first_element(s)));
    Group::check_border(*node);
  }
}

TEST_CASE(
    "device transport: a round that fails breaks the epoch and names nobody; sums are whole (R2)") {
  std::uint32_t broken = 0;
  for (std::uint32_t seed = 0; seed < 96; ++seed) {
    CAPTURE(seed);
    Shape shape = shape_of(seed);
    if (shape.world == 1) continue;
    Group group(seed, shape);
    const auto before = group.nodes[0]->own_sums;
    const Rank rank = static_cast<Rank>(seed % shape.world);
    group.fault = nth_round(rank, static_cast<int>(seed / 8), TransportFault::kFails);
    group.run();
    group.time_passes();
    check_nothing_wrong_is_taken(group);
    CHECK(group.nodes[0]->own_sums == before);
    const Node& node = *group.nodes[rank];
    if (!node.failed) continue;  // it had no such round
    REQUIRE(node.wrong.has_value());
    CHECK(node.wrong->peer == kNoRank);
    CHECK(!node.reduced);
    ++broken;
    // Whoever waits for it breaks at its own deadline; whoever does not has what it needs.
    for (const auto& other : group.nodes) CHECK((other->wrong || other->reduced || !other->failed));
  }
  CHECK(broken > 30);
}

TEST_CASE("device transport: a round that never ends breaks the epoch at its deadline") {
  std::uint32_t broken = 0;
  for (std::uint32_t seed = 1; seed < 64; ++seed) {
    CAPTURE(seed);
    Shape shape = shape_of(seed);
    if (shape.world == 1) continue;
    Group group(seed, shape);
    const Rank rank = static_cast<Rank>(seed % shape.world);
    group.fault = nth_round(rank, static_cast<int>(seed / 16), TransportFault::kNever);
    group.run();
    const Node& node = *group.nodes[rank];
    CHECK(!node.wrong);
    if (node.reduced) continue;
    group.time_passes();
    REQUIRE(node.wrong.has_value());
    CHECK(node.wrong->peer == kNoRank);
    check_nothing_wrong_is_taken(group);
    ++broken;
  }
  CHECK(broken > 20);
}

// Goal: staged parameters are compared before they are copied. Method: garbage in each round in turn.
TEST_CASE("device transport: parameters that are garbage are not taken, and break the epoch") {
  std::uint32_t broken = 0;
  for (int n = 0; n < 6; ++n)
    for (std::uint32_t seed = 1; seed < 32; ++seed) {
      CAPTURE(n);
      CAPTURE(seed);
      Shape shape = shape_of(seed);
      if (shape.world == 1) continue;
      Group group(seed, shape);
      const Rank rank = static_cast<Rank>(seed % shape.world);
      group.fault = nth_round(rank, n, TransportFault::kGarbage);
      group.run();
      check_nothing_wrong_is_taken(group);
      const Node& node = *group.nodes[rank];
      if (!node.wrong) continue;  // that round received nothing, or totals
      CHECK(node.wrong->peer == kNoRank);
      CHECK(!node.gathered);
      CHECK(node.wrong->error.code() == Code::kCorrupt);
      ++broken;
    }
  CHECK(broken > 20);
}

// Goal: why totals are weighed before the vote. The first four lanes come in frames and hold whatever
// the transport has brought; the fifth, against memory, does not.
TEST_CASE("device transport: totals of garbage pass all lanes but the fifth") {
  std::uint32_t passed = 0;
  for (int n = 0; n < 8; ++n)
    for (std::uint32_t seed = 1; seed < 32; ++seed) {
      CAPTURE(n);
      CAPTURE(seed);
      Shape shape = shape_of(seed);
      if (shape.world == 1) continue;
      Group group(seed, shape);
      const Rank rank = static_cast<Rank>(seed % shape.world);
      bool garbage = false;
      int left = n;
      group.fault = [&](Rank at, bool) {
        if (at != rank || !group.nodes[rank]->gathered || left-- != 0) return TransportFault::kNone;
        garbage = true;
        return TransportFault::kGarbage;
      };
      group.run();
      if (!garbage) continue;
      bool differs = false;  // somewhere: an owner's garbage goes on to its replicas
      for (const auto& node : group.nodes) {
        CHECK(node->reduced);
        CHECK(!node->wrong);
        const auto wrong = node->wrong_total();
        for (SegmentId s = 0; s < group.layout.segments(); ++s) {
          const std::uint64_t first = group.layout.first_element(s);
          const bool same = std::equal(group.sum.begin() + first,
                                       group.sum.begin() + first + group.layout.elements(s),
                                       node->all_totals.begin() + first);
          if (!node->held[s] || same) continue;
          differs = true;
          CHECK(wrong.has_value());
        }
      }
      passed += differs;
    }
  CHECK(passed > 20);
}

TEST_CASE("device transport: whoever dies in a round leaves the others no wrong totals") {
  std::uint32_t ended = 0;
  for (std::uint32_t seed = 1; seed < 128; ++seed) {
    CAPTURE(seed);
    Shape shape = shape_of(seed);
    if (shape.world < 3) continue;
    Group group(seed, shape);
    const Rank dead = static_cast<Rank>(seed % shape.world);
    const TransportFault how = std::array{TransportFault::kNever, TransportFault::kGarbage,
                                          TransportFault::kFails}[seed % 3];
    int left = static_cast<int>(seed / 16);
    group.fault = [&](Rank at, bool peer_gone) {
      if (peer_gone) return how;
      if (at == dead && left-- == 0) group.nodes[dead]->transport->doom();
      return TransportFault::kNone;
    };
    group.run();
    group.time_passes();
    check_nothing_wrong_is_taken(group);
    for (Rank r = 0; r < shape.world; ++r) {
      const Node& node = *group.nodes[r];
      if (r == dead) continue;
      if (node.wrong) CHECK(node.wrong->peer == kNoRank);
      const bool right = !node.wrong_total();
      if (node.reduced && !right) ++ended;  // what is weighed before the vote
    }
  }
  CHECK(ended > 0);
}

TEST_CASE(
    "device transport: a transport lost before its step breaks the epoch; one lost when all is "
    "done does not") {
  Group early(3, {.world = 3});
  early.take(0, early.nodes[0]->frames->lose_transport(kAttempt, Error(Code::kPeerLost, "lost")));
  CHECK(!early.nodes[0]->wrong);
  early.begin_step(0);
  REQUIRE(early.nodes[0]->wrong.has_value());
  CHECK(early.nodes[0]->wrong->peer == kNoRank);
  CHECK(early.nodes[0]->wrong->error.code() == Code::kUnavailable);

  Group late(3, {.world = 3});
  late.run();
  late.take(0, late.nodes[0]->frames->lose_transport(kAttempt, Error(Code::kPeerLost, "lost")));
  late.check_all();

  // While nothing of a step on the device transport is under way, but some is still to come.
  Group between(3, {.world = 3});
  for (Rank r = 0; r < 3; ++r) between.begin_step(r);
  between.take(0,
               between.nodes[0]->frames->lose_transport(kAttempt, Error(Code::kPeerLost, "lost")));
  CHECK(between.nodes[0]->wrong.has_value());
}

// Its votes have named another one, so rounds of this one are not what the others are at.
TEST_CASE("device transport: a step goes over the transport of its own attempt and no other") {
  Group group(3, {.world = 3, .attempt = kAttempt + 1});
  group.begin_step(0);
  REQUIRE(group.nodes[0]->wrong.has_value());
  CHECK(group.nodes[0]->wrong->peer == kNoRank);
  CHECK(group.nodes[0]->wrong->error.code() == Code::kUnavailable);
}

// A round has a deadline, and whoever computes has none.
TEST_CASE("device transport: a reduce's rounds begin when everybody's share has ended") {
  for (std::uint32_t seed = 2; seed < 34; ++seed) {
    CAPTURE(seed);
    Shape shape = shape_of(seed);
    if (shape.world == 1) continue;
    Group group(seed, shape);
    group.computing = static_cast<Rank>(seed % shape.world);
    group.run();
    group.time_passes();
    for (const auto& node : group.nodes) {
      const auto& totals = node->all_totals;
      CHECK(std::ranges::count(totals, kUntouched) == std::ssize(totals));
      CHECK(node->gathered);
      CHECK(!node->reduced);
      CHECK(!node->wrong);
    }
    const Rank late = *std::exchange(group.computing, std::nullopt);
    group.end_share_if_due(late);
    while (group.one_soon()) {
    }
    group.check_all();
  }
}

TEST_CASE(
    "device transport: what a transport says after it was lost changes nothing, nor does another "
    "attempt's") {
  Group group(3, {.world = 3});
  for (Rank r = 0; r < 3; ++r) group.begin_step(r);
  Epoch& frames = *group.nodes[0]->frames;
  CHECK(frames.lose_transport(kAttempt + 1, Error(Code::kPeerLost, "of another")).empty());
  CHECK(frames.lose_transport(kAttempt, Error(Code::kPeerLost, "lost")).size() == 1);
  CHECK(frames.on_round(kAttempt, ok()).empty());
}

TEST_CASE(
    "device transport: a round ends by the word of its own transport, not by a late one of "
    "another") {
  for (std::uint32_t seed = 1; seed < 24; ++seed) {
    CAPTURE(seed);
    Group group(seed, shape_of(seed));
    group.begin();
    while (group.one_soon())
      for (Rank r = 0; r < group.shape.world; ++r)
        group.take(r, group.nodes[r]->frames->on_round(kAttempt + 1, ok()));
    group.check_all();
  }
}

TEST_CASE("device transport: two ranks that do not agree on a round's sizes fail both") {
  std::vector<std::function<void()>> soon;
  MemoryTransports transports({[&](std::uint32_t ms, std::function<void()> what) {
                                 if (ms == 0) soon.push_back(std::move(what));
                               },
                               {}});
  const Bytes id = transports.make_id().value();
  std::vector<std::unique_ptr<DeviceTransport>> ends;
  int failed = 0, ended = 0;
  std::byte memory[64];
  for (Rank r = 0; r < 2; ++r) {
    TransportOptions options{.self = r, .world = 2, .id = id, .staging_bytes = 64};
    options.allocate = [](std::size_t bytes) {
      return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
    };
    TransportEvents events{[] {}, [&](const Error&) { ++failed; },
                           [&](Result<> round) { ended += bool(round); }};
    ends.push_back(transports.connect(std::move(options), std::move(events)));
  }
  for (const auto& action : std::exchange(soon, {})) action();
  ends[0]->exchange({{1, memory, 32}}, {});
  ends[1]->exchange({}, {{0, ends[1]->staging(), 16}});
  for (const auto& action : std::exchange(soon, {})) action();
  CHECK(failed == 2);
  CHECK(ended == 0);
}

// ---- How much of it is in memory at once -------------------------------------------------------

TEST_CASE("device transport: staging memory is enough for every table of the same owners") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const Shape shape = shape_of(seed);
    const Layout layout({{"a", {std::uint64_t{shape.segments} * kBlock}}}, 1, 1 + seed % 5);
    Table owners(layout.segments());
    for (auto& row : owners) row.push_back(static_cast<Rank>(random() % shape.world));
    Table moved = owners;  // as moves of the epoch add to it
    for (auto& row : moved)
      for (Rank r = 0; r < shape.world; ++r)
        if (r != row.front() && random() % 3 == 0) row.push_back(r);
    for (Rank self = 0; self < shape.world; ++self) {
      const std::size_t there = staging_bytes(layout, owners, shape.world, self, shape.round_bytes);
      Node node(layout);
      const auto table = std::make_shared<const Table>(moved);
      const std::vector<bool> all(shape.world, true);
      DeviceReduce reduce(layout, table, all, self, node, shape.round_bytes);
      while (!reduce.over()) {
        std::size_t received = 0;
        const auto round = reduce.next(nullptr);
        for (const Transfer& t : round.value()->receives) received += t.bytes;
        CHECK(received <= there);
        std::vector<std::byte> staging(there + 1);
        REQUIRE(reduce.next(staging.data()).has_value());
        REQUIRE(reduce.ended().has_value());
      }
    }
  }
}

TEST_CASE("device transport: all owners work in each round, and a round is bounded") {
  const Layout layout({{"a", {std::uint64_t{64} * kBlock}}}, 1, 4);
  Table table(layout.segments());
  for (SegmentId s = 0; s < layout.segments(); ++s) table[s] = {static_cast<Rank>(s / 16)};
  const Cut cut(layout, table, 4, 4 * 4 * kBlock * sizeof(float));
  REQUIRE(cut.rounds() == 4);
  std::vector<bool> seen(layout.segments());
  for (Rank owner = 0; owner < 4; ++owner) {
    CHECK(cut.ranges(owner, 4).empty());
    for (std::size_t round = 0; round < 4; ++round) {
      std::uint32_t segments = 0;
      for (const SegmentRange range : cut.ranges(owner, round)) {
        segments += range.count;
        for (const SegmentId s : range) {
          CHECK(table[s].front() == owner);
          CHECK(!seen[s]);
          seen[s] = true;
        }
      }
      CHECK(segments == 4);
    }
  }
  CHECK(std::ranges::find(seen, false) == seen.end());
  // A round has one segment of each owner where a segment is larger than that.
  const Cut fine(layout, table, 4, 1);
  REQUIRE(fine.rounds() == 16);
  for (std::size_t round = 0; round < 16; ++round) {
    REQUIRE(fine.ranges(2, round).size() == 1);
    CHECK(fine.ranges(2, round).front().count == 1);
  }
}

}  // namespace
}  // namespace starling::collectives::device_transport_test
