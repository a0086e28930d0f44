#include "collectives/exchange.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>

#include "tests/collectives/memory_net.h"

namespace starling::collectives {
namespace {

// Goal: done exactly when every rank's record is there; a barrier is one with empty records.
TEST_CASE("exchange: everybody has everybody's record, and not before all have started") {
  for (Rank world = 1; world <= 8; ++world) {
    std::mt19937 random(world);
    MemoryNet net(world);
    std::vector<std::unique_ptr<Exchange>> ranks;
    for (Rank r = 0; r < world; ++r) {
      ExchangeOptions options;
      options.self = r;
      options.world = world;
      options.version = 4;
      ranks.push_back(std::make_unique<Exchange>(options));
    }
    const auto handler = [&](Rank to, Rank from, const Frame& frame) {
      return ranks[to]->on_frame(from, frame);
    };
    for (Rank r = 0; r < world; ++r) {
      for (Rank q = 0; q < world; ++q) CHECK(!ranks[q]->done());
      ranks[r]->start(Bytes(r, static_cast<std::uint8_t>(r)), net.end(r));
      REQUIRE(net.deliver_all(random, handler).has_value());
    }
    for (Rank r = 0; r < world; ++r) {
      REQUIRE(ranks[r]->done());
      for (Rank q = 0; q < world; ++q)
        CHECK(ranks[r]->record(q) == Bytes(q, static_cast<std::uint8_t>(q)));
    }
  }
}

TEST_CASE("exchange: a second record, another version, kind or length is refused by name") {
  const auto refused = [](auto change) {
    ExchangeOptions options;
    options.world = 3;
    options.record_bytes_max = 8;
    Exchange exchange(options);
    FrameHeader header;
    header.kind = FrameKind::kRecord;
    change(header, exchange);
    const std::size_t size = header.flags == 0 ? 8 : 9;
    const auto result = exchange.on_frame(2, make_frame(header, share(Bytes(size))));
    return !result.has_value() && result.error().code() == Code::kCorrupt &&
           result.error().text().find("rank 2") != std::string::npos;
  };
  CHECK(!refused([](FrameHeader&, Exchange&) {}));
  CHECK(refused([](FrameHeader& h, Exchange&) { h.version = 1; }));
  CHECK(refused([](FrameHeader& h, Exchange&) { h.kind = FrameKind::kVote; }));
  CHECK(refused([](FrameHeader& h, Exchange&) { h.flags = 1; }));  // makes it one byte too long
  CHECK(refused([](FrameHeader& h, Exchange& e) {
    REQUIRE(e.on_frame(2, make_frame(h, share({}))).has_value());
  }));
}

}  // namespace
}  // namespace starling::collectives
