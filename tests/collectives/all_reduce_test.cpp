#include "collectives/all_reduce.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>

#include "tests/collectives/memory_net.h"

namespace starling::collectives {
namespace {

struct AllReduceGroup {
  AllReduceGroup(std::uint32_t world, std::size_t n, std::uint32_t seed, AllReduceOptions options)
      : random(seed), net(world) {
    in.resize(world);
    out.assign(world, std::vector<std::int32_t>(n, 77));
    for (Rank r = 0; r < world; ++r) {
      for (std::size_t i = 0; i < n; ++i) in[r].push_back(static_cast<std::int32_t>(random()));
      options.self = r;
      options.world = world;
      ranks.push_back(std::make_unique<AllReduce>(in[r], out[r], options));
    }
  }
  // Starts and deliveries in random order.
  Result<> run() {
    const auto handler = [this](Rank to, Rank from, const Frame& frame) {
      return ranks[to]->on_frame(from, frame, net.end(to));
    };
    std::vector<Rank> starting;
    for (Rank r = 0; r < ranks.size(); ++r) starting.push_back(r);
    std::shuffle(starting.begin(), starting.end(), random);
    Result<> result = ok();
    while (!starting.empty() && result) {
      if (random() % 3 == 0 || !net.deliver_one(random, handler, &result)) {
        ranks[starting.back()]->start(net.end(starting.back()));
        starting.pop_back();
      }
    }
    if (!result) return result;
    return net.deliver_all(random, handler);
  }
  std::mt19937 random;
  MemoryNet net;
  std::vector<std::vector<std::int32_t>> in, out;
  std::vector<std::unique_ptr<AllReduce>> ranks;
};

// Goal: the sum is that of a plain loop, for every world size and length, whatever the order of
// arrival. Method: random orders, pieces of 64 bytes, one hop up to 32 bytes.
TEST_CASE("all-reduce: every rank gets the sum of all, in any order of arrival") {
  AllReduceOptions options;
  options.piece_bytes = 64;
  options.one_hop_bytes = 32;
  for (std::uint32_t world = 1; world <= 8; ++world) {
    for (const std::size_t n : {0u, 1u, world - 1, world, 31u, 1009u}) {
      AllReduceGroup group(world, n, world * 7919 + static_cast<std::uint32_t>(n), options);
      CAPTURE(world);
      CAPTURE(n);
      REQUIRE(group.run().has_value());
      std::vector<std::int32_t> sum(n);
      for (const auto& in : group.in)
        for (std::size_t i = 0; i < n; ++i)
          sum[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum[i]) +
                                             static_cast<std::uint32_t>(in[i]));
      for (Rank r = 0; r < world; ++r) {
        CHECK(group.ranks[r]->done());
        CHECK(group.out[r] == sum);
      }
    }
  }
}

// Goal: what a peer can get wrong is an error that names it, never a wrong sum or a crash.
TEST_CASE("all-reduce: a malformed frame is refused and its sender named") {
  struct Case {
    const char* name;
    void (*change)(Frame&);
  };
  const Case cases[] = {
      {"no such piece", [](Frame& f) { f.header.first = 99; }},
      {"two pieces", [](Frame& f) { f.header.count = 2; }},
      {"too short", [](Frame& f) { f.payload = share(Bytes(4)); }},
      {"another operation", [](Frame& f) { f.header.version = 5; }},
      {"another kind", [](Frame& f) { f.header.kind = FrameKind::kSide; }},
      {"a total that is not its own", [](Frame& f) { f.header.kind = FrameKind::kTotal; }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    AllReduceOptions options;
    options.piece_bytes = 64;
    options.one_hop_bytes = 0;
    AllReduceGroup group(3, 48, 1, options);
    group.ranks[1]->start(group.net.end(1));
    Frame frame = group.net.queue(1, 2).front();
    c.change(frame);
    const auto result = group.ranks[2]->on_frame(1, frame, group.net.end(2));
    REQUIRE(!result.has_value());
    CHECK(result.error().code() == Code::kCorrupt);
    CHECK(result.error().text().find("from rank 1") != std::string::npos);
  }
  AllReduceGroup group(3, 48, 1, {});
  group.ranks[1]->start(group.net.end(1));
  const Frame frame = group.net.queue(1, 2).front();
  CHECK(group.ranks[2]->on_frame(1, frame, group.net.end(2)).has_value());
  CHECK(!group.ranks[2]->on_frame(1, frame, group.net.end(2)).has_value());
}

}  // namespace
}  // namespace starling::collectives
