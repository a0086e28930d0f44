#include "collectives/gather.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "tests/collectives/memory_net.h"

namespace starling::collectives {
namespace {

using Table = std::vector<std::vector<Rank>>;

// Parameters of one byte per segment, so that a lost or doubled one shows.
struct Source : GatherSource {
  void publish(Version version, SegmentRange segments) override {
    CHECK(version == 9);
    for (const SegmentId s : segments) CHECK(published.insert(s).second);
  }
  Bytes params(SegmentRange segments) override {
    for (const SegmentId s : segments) CHECK(published.contains(s));
    return {values.begin() + segments.first, values.begin() + segments.first + segments.count};
  }
  std::vector<std::uint64_t> checksums(SegmentRange segments) override {
    for (const SegmentId s : segments) CHECK(published.contains(s));
    return {values.begin() + segments.first, values.begin() + segments.first + segments.count};
  }
  Result<> set_params(Version, SegmentRange segments, ByteView bytes) override {
    if (bytes.size() != segments.count) return Error(Code::kCorrupt, "wrong size");
    for (const SegmentId s : segments) CHECK(!published.contains(s));
    std::copy(bytes.begin(), bytes.end(), values.begin() + segments.first);
    return ok();
  }
  Bytes values;
  std::set<SegmentId> published;
};

struct GatherGroup {
  GatherGroup(std::uint32_t world, std::uint32_t seed, std::uint32_t joiners)
      : random(seed), layout({{"a", {37 * kBlock}}}, 1, 1 + seed % 6), net(world), sources(world) {
    Table table(layout.segments());
    // Up to three copies, fewer where there are fewer members.
    for (auto& row : table) {
      const auto members = world - joiners,
                 copies = std::min<std::uint32_t>(members, 1 + random() % 3);
      const auto owner = random() % members;
      for (std::uint32_t c = 0; c < copies; ++c)
        row.push_back(static_cast<Rank>((owner + c) % members));
    }
    holders = std::make_shared<const Table>(table);
    for (Rank r = 0; r < world; ++r) {
      sources[r].values.assign(layout.segments(), 0);
      for (SegmentId s = 0; s < layout.segments(); ++s)
        if (holds(r, s)) sources[r].values[s] = static_cast<std::uint8_t>(s + 1);
    }
    for (Rank r = 0; r < world; ++r) {
      GatherOptions options{r, world, /*version=*/9, Bytes{4, 5, 6}};
      if (r >= world - joiners) {
        options.version = kNoVersion;
        options.record.clear();
      }
      ranks.push_back(std::make_unique<Gather>(layout, holders, options, sources[r]));
    }
  }
  bool holds(Rank r, SegmentId s) const {
    return std::ranges::find((*holders)[s], r) != (*holders)[s].end();
  }
  Result<> run() {
    for (Rank r = 0; r < ranks.size(); ++r) ranks[r]->start(net.end(r));
    return net.deliver_all(random, [this](Rank to, Rank from, const Frame& frame) {
      return ranks[to]->on_frame(from, frame);
    });
  }
  std::mt19937 random;
  const Layout layout;
  MemoryNet net;
  std::vector<Source> sources;
  Holders holders;
  std::vector<std::unique_ptr<Gather>> ranks;
};

TEST_CASE("gather: everybody has all parameters, whoever holds how much of them") {
  for (std::uint32_t seed = 0; seed < 64; ++seed) {
    CAPTURE(seed);
    const std::uint32_t world = 1 + seed % 8;
    GatherGroup group(world, seed, /*joiners=*/world > 2 ? seed % 3 : 0);
    REQUIRE(group.run().has_value());
    for (Rank r = 0; r < world; ++r) {
      CHECK(group.ranks[r]->done());
      for (SegmentId s = 0; s < group.layout.segments(); ++s)
        CHECK(group.sources[r].values[s] == s + 1);
      for (SegmentId s = 0; s < group.layout.segments(); ++s)
        CHECK(group.sources[r].published.contains(s) == group.holds(r, s));
    }
  }
}

TEST_CASE("gather: a copy that is not as its owner's is named, and the version is never complete") {
  GatherGroup group(3, 5, /*joiners=*/0);
  const auto replicated = [&](SegmentId s) { return (*group.holders)[s].size() > 1; };
  SegmentId s = 0;
  while (!replicated(s)) ++s;
  const Rank replica = (*group.holders)[s].back();
  ++group.sources[replica].values[s];
  REQUIRE(group.run().has_value());
  for (Rank r = 0; r < 3; ++r) {
    CHECK(group.ranks[r]->done() == (r != replica));
    CHECK(group.ranks[r]->differs() == (r == replica ? std::optional(s) : std::nullopt));
  }
}

TEST_CASE("gather: who has a copy is sent no parameters") {
  GatherGroup group(3, 5, /*joiners=*/0);
  for (Rank r = 0; r < 3; ++r) group.ranks[r]->start(group.net.end(r));
  for (Rank to = 0; to < 3; ++to)
    for (Rank from = 0; from < 3; ++from) {
      if (to == from) continue;
      for (const Frame& frame : group.net.queue(from, to)) {
        const SegmentRange run{frame.header.first, frame.header.count};
        constexpr std::size_t kPrefix = 4 + 3;  // the record and its length
        const std::size_t each = group.holds(to, run.first) ? sizeof(std::uint64_t) : 1;
        CHECK(frame.payload->size() == kPrefix + each * run.count);
      }
    }
}

TEST_CASE("gather: a joiner learns version and record from the first frame") {
  GatherGroup group(3, 5, /*joiners=*/1);
  CHECK(group.ranks[2]->version() == kNoVersion);
  REQUIRE(group.run().has_value());
  CHECK(group.ranks[2]->version() == 9);
  const ByteView record = group.ranks[2]->record();
  CHECK(Bytes(record.begin(), record.end()) == Bytes{4, 5, 6});
}

TEST_CASE("gather: a malformed frame is refused and its sender named") {
  struct Case {
    const char* name;
    void (*change)(Frame&);
  };
  const Case cases[] = {
      {"another kind", [](Frame& f) { f.header.kind = FrameKind::kMove; }},
      {"another version", [](Frame& f) { f.header.version = 10; }},
      {"no version", [](Frame& f) { f.header.version = kNoVersion; }},
      {"no segments", [](Frame& f) { f.header.count = 0; }},
      {"too many segments", [](Frame& f) { f.header.count = ~0u; }},
      {"no payload", [](Frame& f) { f.payload = share({}); }},
      {"a record longer than the frame",
       [](Frame& f) {
         Bytes bytes = *f.payload;
         bytes[2] = 1;
         f.payload = share(std::move(bytes));
       }},
      {"another record",
       [](Frame& f) {
         Bytes bytes = *f.payload;
         ++bytes[4];
         f.payload = share(std::move(bytes));
       }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    GatherGroup group(2, 3, 0);
    group.ranks[1]->start(group.net.end(1));
    Frame frame = group.net.queue(1, 0).front();
    c.change(frame);
    const auto result = group.ranks[0]->on_frame(1, frame);
    REQUIRE(!result.has_value());
    CHECK(result.error().code() == Code::kCorrupt);
    CHECK(result.error().text().find("from rank 1") != std::string::npos);
  }
  GatherGroup group(3, 3, 0);
  group.ranks[1]->start(group.net.end(1));
  const Frame frame = group.net.queue(1, 0).front();
  CHECK(!group.ranks[0]->on_frame(2, frame).has_value());  // not from the owner
  CHECK(group.ranks[0]->on_frame(1, frame).has_value());
  CHECK(!group.ranks[0]->on_frame(1, frame).has_value());  // twice
}

}  // namespace
}  // namespace starling::collectives
