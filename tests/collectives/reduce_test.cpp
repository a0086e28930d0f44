// One step's reduction among ranks in memory, in any order of arrival, and frames that nobody should have sent.
// Long because one rig serves all cases.

#include "collectives/reduce.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>

#include "tests/collectives/memory_net.h"

namespace starling::collectives {
namespace {

constexpr std::uint64_t kReduceSeed = 11;
constexpr Version kStep = 6;

using Table = std::vector<std::vector<Rank>>;
using SideKey = std::tuple<std::uint32_t, MicroBatch, std::uint32_t>;  // block, micro-batch, use

// Of odd seeds the first half is a part with two uses.
std::vector<TensorSpec> tensors_of(std::uint32_t blocks, std::uint32_t seed) {
  const std::uint32_t tied = seed % 2 == 0 ? 0 : blocks / 2;
  if (tied == 0) return {{"a", {blocks * kBlock}}};
  return {{.name = "tied", .shape = {tied * kBlock}, .layer = 0, .uses = 2},
          {.name = "a", .shape = {(blocks - tied) * kBlock}, .layer = 1}};
}

// One rank's arrays, filled as the grid would fill them.
struct Worker {
  std::vector<std::int32_t> accumulators, totals;
  std::vector<ProofLanes> lanes, total_lanes;
  std::vector<SideEntry> own, received;
};

// A group of workers whose micro-batches are dealt at random; `direct` is the sum in one loop.
struct ReduceGroup {
  // `computing`: the ranks that have micro-batches; empty: any may.
  ReduceGroup(std::uint32_t world_size, std::uint32_t blocks, std::uint32_t micro_batches,
              std::uint32_t seed, std::vector<Rank> computing = {})
      : random(seed),
        layout(tensors_of(blocks, seed), /*segment_blocks=*/1 + seed % 3,
               /*bucket_segments=*/1 + seed % 5),
        world(world_size),
        M(micro_batches),
        workers(world_size),
        direct(layout.elements()) {
    for (Worker& w : workers) {
      w.accumulators.resize(layout.elements());
      w.totals.assign(layout.elements(), 123);
      w.lanes.resize(layout.segments());
      w.total_lanes.resize(layout.segments());
    }
    for (MicroBatch m = 0; m < M; ++m) {
      const auto drawn = static_cast<Rank>(random() % world);
      add_micro_batch(workers[computing.empty() ? drawn : computing[m % computing.size()]], m);
    }
    Table table(layout.segments());
    for (auto& row : table) {
      for (Rank r = 0; r < world; ++r) row.push_back(r);
      std::shuffle(row.begin(), row.end(), random);
      row.resize(1 + random() % world);
    }
    holders = std::make_shared<const Table>(table);
  }

  void add_micro_batch(Worker& w, MicroBatch m) {
    for (SegmentId s = 0; s < layout.segments(); ++s)
      for (std::uint32_t use = 0; use < layout.uses(s); ++use) add_use(w, s, m, use);
  }

  void add_use(Worker& w, SegmentId s, MicroBatch m, std::uint32_t use) {
    for (std::uint32_t b = layout.first_block(s); b < layout.first_block(s) + layout.block_count(s);
         ++b) {
      if (random() % 4 == 0) {
        add_side_entry(w, b, m, use);
        continue;
      }
      for (std::uint32_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
        const auto q = static_cast<std::int32_t>(random() % 2001) - 1000;
        w.accumulators[i] += q;
        direct[i] += q;
      }
    }
    ++w.lanes[s].micro_batches;
    w.lanes[s].micro_batch_hashes += micro_batch_hash(kReduceSeed, kStep, m, use);
  }

  void add_side_entry(Worker& w, std::uint32_t block, MicroBatch m, std::uint32_t use = 0) {
    SideEntry entry{block, m, use, {}};
    entry.values[0] = static_cast<float>(random());
    auto& lanes = w.lanes[layout.segment_of(block)];
    ++lanes.side_entries;
    lanes.side_hashes += side_entry_hash(entry);
    w.own.push_back(entry);
    all_side.push_back({block, m, use});
  }

  // Each micro-batch adds to every segment.
  std::vector<bool> contributors() const {
    std::vector<bool> of;
    for (const Worker& w : workers) of.push_back(w.lanes[0].micro_batches > 0);
    return of;
  }

  // `in_place`: totals are added up where the own sums are, which R2 forbids.
  void make(bool in_place = false) {
    ranks.clear();
    ranks.resize(world);
    for (Rank r = 0; r < world; ++r) make_one(r, in_place);
  }
  void make_one(Rank r, bool in_place = false) {
    Worker& w = workers[r];
    const Sums sums{&layout,
                    w.accumulators,
                    w.lanes,
                    in_place ? w.accumulators : w.totals,
                    in_place ? w.lanes : w.total_lanes,
                    &w.received,
                    grid_bits};
    const ReduceOptions options{r, world, kStep, contributors(),
                                CompleteLanes(kReduceSeed, kStep, M, layout.uses_max())};
    ranks[r] = std::make_unique<Reduce>(sums, holders, options);
  }

  // Buckets are contributed, shares ended and frames delivered in random order. `limit` frames at
  // most.
  Result<> run(MemoryNet& net, std::size_t limit = ~std::size_t{0}) {
    std::vector<std::pair<Rank, std::uint32_t>> todo;
    for (Rank r = 0; r < world; ++r)
      for (std::uint32_t b = 0; b <= layout.buckets(); ++b) todo.push_back({r, b});
    std::shuffle(todo.begin(), todo.end(), random);
    Result<> result = ok();
    while (result) {
      const bool moved =
          limit > 0 && random() % 2 == 0 && net.deliver_one(random, handler(net), &result);
      if (moved) {
        --limit;
      } else if (!todo.empty()) {
        const auto [r, b] = todo.back();
        todo.pop_back();
        result = b < layout.buckets() ? ranks[r]->contribute(b, net.end(r))
                                      : ranks[r]->end_share(workers[r].own, net.end(r));
      } else {
        break;
      }
    }
    while (result && limit > 0 && net.deliver_one(random, handler(net), &result)) --limit;
    return result;
  }

  MemoryNet::Handler handler(MemoryNet& net) {
    return [this, &net](Rank to, Rank from, const Frame& frame) {
      return ranks[to]->on_frame(from, frame, net.end(to));
    };
  }

  bool holds(Rank r, SegmentId s) const {
    const auto& ranks_of = (*holders)[s];
    return std::find(ranks_of.begin(), ranks_of.end(), r) != ranks_of.end();
  }

  void check_all() {
    const CompleteLanes complete(kReduceSeed, kStep, M, layout.uses_max());
    for (Rank r = 0; r < world; ++r) {
      CAPTURE(r);
      CHECK(ranks[r]->done());
      Worker& w = workers[r];
      for (SegmentId s = 0; s < layout.segments(); ++s) {
        const auto first = layout.first_block(s) * kBlock;
        const auto n = layout.block_count(s) * kBlock;
        const bool held = holds(r, s);
        for (auto i = first; i < first + n; ++i)
          if (w.totals[i] != (held ? direct[i] : 123)) FAIL("element " << i << " of rank " << r);
        const ProofLanes& whole = complete.of(layout.uses(s));
        if (held) CHECK(w.total_lanes[s].micro_batch_hashes == whole.micro_batch_hashes);
      }
      std::vector<SideKey> expected, got;
      for (const SideKey& key : all_side)
        if (holds(r, layout.segment_of(std::get<0>(key)))) expected.push_back(key);
      for (const SideEntry& e : w.received) got.push_back({e.block, e.micro_batch, e.use});
      std::sort(expected.begin(), expected.end());
      std::sort(got.begin(), got.end());
      CHECK(got == expected);
    }
  }

  std::mt19937 random;
  const Layout layout;
  const std::uint32_t world;
  const std::uint32_t M;
  std::vector<Worker> workers;
  std::vector<std::int32_t> direct;
  std::vector<SideKey> all_side;
  Holders holders;
  std::vector<std::unique_ptr<Reduce>> ranks;
  std::uint32_t grid_bits = 0;  // of Sums
};

// Goal: whatever the world size, the placement and the order of arrival, every holder has the sum
// of a plain loop and all side entries, nobody else is touched, and accumulators stay (R2).
TEST_CASE("reduce: every holder gets the exact totals, in any order of arrival") {
  for (std::uint32_t seed = 0; seed < 160; ++seed) {
    CAPTURE(seed);
    ReduceGroup group(1 + seed % 8, 1 + seed * 7 % 40, /*M=*/1 + seed % 13, seed);
    MemoryNet net(group.world);
    std::vector<std::vector<std::int32_t>> before;
    for (const Worker& w : group.workers) before.push_back(w.accumulators);
    group.make();
    const auto result = group.run(net);
    REQUIRE_MESSAGE(result.has_value(), result.error().text());
    group.check_all();
    for (Rank r = 0; r < group.world; ++r) CHECK(group.workers[r].accumulators == before[r]);
  }
}

// Goal: a member without a share costs the others no bytes that grow with the model (R18). Method: of three ranks one
// has computed everything; the frames of the other two have no payload.
TEST_CASE("reduce: R18, a rank without a share sends no sums, and nobody waits for them") {
  for (Rank computing = 0; computing < 3; ++computing) {
    CAPTURE(computing);
    ReduceGroup group(3, 8, /*M=*/4, /*seed=*/4, {computing});
    MemoryNet net(group.world);
    group.make();
    for (Rank r = 0; r < 3; ++r)
      REQUIRE(group.ranks[r]->start(group.workers[r].own, net.end(r)).has_value());
    for (Rank from = 0; from < 3; ++from)
      for (Rank to = 0; to < 3; ++to)
        for (const Frame& frame : net.queue(from, to))
          CHECK((from == computing || frame.payload->empty()));
    REQUIRE(net.deliver_all(group.random, group.handler(net)).has_value());
    group.check_all();
  }
}

TEST_CASE("reduce: R18, a contribution of a rank without a share is refused") {
  ReduceGroup group(2, 4, /*M=*/3, /*seed=*/2);
  group.holders = std::make_shared<const Table>(Table(group.layout.segments(), {1, 0}));
  group.make();
  Worker& w = group.workers[1];
  const Sums sums{&group.layout, w.accumulators, w.lanes, w.totals, w.total_lanes, &w.received};
  const ReduceOptions options{1, 2, kStep, {false, true}, CompleteLanes(kReduceSeed, kStep, 3)};
  group.ranks[1] = std::make_unique<Reduce>(sums, group.holders, options);
  MemoryNet net(group.world);
  REQUIRE(group.ranks[0]->start(group.workers[0].own, net.end(0)).has_value());
  const auto result = net.deliver_all(group.random, group.handler(net));
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().text().find("of a rank without a share") != std::string::npos);
}

TEST_CASE("reduce: packed sums give the same totals, in fewer bytes") {
  for (std::uint32_t seed = 0; seed < 80; ++seed) {
    CAPTURE(seed);
    ReduceGroup group(1 + seed % 8, 1 + seed * 7 % 40, /*M=*/1 + seed % 13, seed);
    group.grid_bits = 11;  // of what add_use() draws
    MemoryNet net(group.world);
    group.make();
    const auto result = group.run(net);
    REQUIRE_MESSAGE(result.has_value(), result.error().text());
    group.check_all();
  }
}

// What a sender may have is bounded: a wider sum is an error of its connection, as is any frame of the other form.
TEST_CASE("reduce: packed sums that are none of the sender's micro-batches are refused") {
  ReduceGroup group(2, 4, /*M=*/3, /*seed=*/2);
  group.holders = std::make_shared<const Table>(Table(group.layout.segments(), {1, 0}));
  const auto refused = [&](std::uint32_t bits, bool receiver_packs) {
    MemoryNet net(group.world);
    group.grid_bits = bits;
    group.make();
    if (!receiver_packs) {
      group.grid_bits = 0;
      group.make_one(1);
    }
    REQUIRE(group.ranks[0]->start(group.workers[0].own, net.end(0)).has_value());
    Result<> result = ok();
    while (result && net.deliver_one(group.random, group.handler(net), &result)) {
    }
    return result ? std::string() : result.error().text();
  };
  CHECK(refused(11, true).empty());
  CHECK(refused(5, true).find("packed sums that are none of its micro-batches") !=
        std::string::npos);
  CHECK(refused(11, false).find("whose sums are packed") != std::string::npos);
  group.workers[0].lanes[0].micro_batches = 4;
  CHECK(refused(11, true).find("of more micro-batches than there are") != std::string::npos);
}

// R2: since accumulators are never written, a reduction that broke off anywhere is simply done
// again, even with another placement.
TEST_CASE("reduce: R2, after a break at any point a second reduction gives the same totals") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    ReduceGroup group(2 + seed % 5, 20, /*M=*/5, seed);
    MemoryNet broken(group.world);
    group.make();
    REQUIRE(group.run(broken, /*limit=*/seed).has_value());
    auto rotated = *group.holders;
    for (auto& holders : rotated)
      for (Rank& r : holders) r = Rank((r + 1) % group.world);
    group.holders = std::make_shared<const Table>(rotated);
    for (Worker& w : group.workers) w.totals.assign(w.totals.size(), 123);
    MemoryNet net(group.world);
    group.make();
    REQUIRE(group.run(net).has_value());
    group.check_all();
  }
}

// R2. Method: the first reduction works in place and breaks off; the second one is as it should be.
TEST_CASE("reduce: R2, a reduction that writes accumulators is noticed by the next one") {
  int noticed = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    ReduceGroup group(3, 20, /*M=*/5, seed);
    MemoryNet broken(group.world);
    group.make(/*in_place=*/true);
    (void)group.run(broken, /*limit=*/10 + seed);
    MemoryNet net(group.world);
    group.make();
    const auto result = group.run(net);
    noticed += !result && result.error().code() == Code::kCorrupt;
  }
  CHECK(noticed == 20);
}

TEST_CASE("reduce: long arrays travel in several frames of bounded size") {
  ReduceGroup group(3, 4096, /*M=*/2, /*seed=*/3);
  MemoryNet net(group.world);
  group.make();
  for (Rank r = 0; r < group.world; ++r)
    REQUIRE(group.ranks[r]->start(group.workers[r].own, net.end(r)).has_value());
  for (Rank a = 0; a < group.world; ++a)
    for (Rank b = 0; b < group.world; ++b)
      for (const Frame& frame : net.queue(a, b))
        CHECK(frame.header.length <= kFrameBytes + 64 * sizeof(ProofLanes));
  REQUIRE(net.deliver_all(group.random, group.handler(net)).has_value());
  group.check_all();
}

// Segment 0 is owned by 0, segment 1 by 1, both held by all of three ranks; M = 6, two each, and
// two side entries of rank 2.
struct Small : ReduceGroup {
  Small() : ReduceGroup(3, 2, 0, 0), net(3) {
    workers.assign(3, workers[0]);
    for (Worker& w : workers) w.own.clear();
    for (Rank r = 0; r < 3; ++r) {
      for (std::uint32_t b = 0; b < 2; ++b) workers[r].accumulators[b * kBlock] = 10;
      for (ProofLanes& lanes : workers[r].lanes) {
        lanes.micro_batches = 2;
        for (MicroBatch m(2 * r); m < 2 * r + 2; ++m)
          lanes.micro_batch_hashes += micro_batch_hash(kReduceSeed, kStep, m);
      }
    }
    add_side_entry(workers[2], 0, 4);
    add_side_entry(workers[2], 1, 5);
    holders = std::make_shared<const Table>(Table{{0, 1, 2}, {1, 2, 0}});
  }
  Result<> run_all() {
    ranks.clear();
    for (Rank r = 0; r < 3; ++r) {
      Worker& w = workers[r];
      const Sums sums{&layout, w.accumulators, w.lanes, w.totals, w.total_lanes, &w.received};
      ranks.push_back(std::make_unique<Reduce>(
          sums, holders,
          ReduceOptions{r, 3, kStep, {true, true, true}, CompleteLanes(kReduceSeed, kStep, 6)}));
    }
    for (Rank r = 0; r < 3; ++r)
      if (auto started = ranks[r]->start(workers[r].own, net.end(r)); !started) return started;
    return ok();
  }
  MemoryNet net;
};

// R3: a sum that misses a micro-batch, has one twice or misses a side entry is not accepted. The
// faults are planted where no checksum sees them: in what a worker believes to have added.
TEST_CASE("reduce: R3, a total whose lanes do not hold is refused, with segment and counts") {
  struct Case {
    const char* name;
    void (*plant)(Small&);
    std::vector<const char*> says;
  };
  const Case cases[] = {
      {"a lost micro-batch",
       [](Small& s) { s.workers[1].lanes[0] = {}; },
       {"segment 0", "4 micro-batches added, expected 6"}},
      {"one twice",
       [](Small& s) { s.workers[1].lanes[1] += s.workers[1].lanes[1]; },
       {"segment 1", "8 micro-batches added, expected 6"}},
      {"the right number, but another one",
       [](Small& s) { s.workers[1].lanes[0].micro_batch_hashes += 1; },
       {"segment 0", "6 micro-batches added, expected 6", "hashes differ"}},
      {"a lost side entry",
       [](Small& s) { s.workers[2].own.pop_back(); },
       {"segment 1", "0 side entries received, expected 1"}},
      {"a changed side entry",
       [](Small& s) { s.workers[2].own[0].values[7] = 1; },
       {"segment 0", "1 side entries received, expected 1", "hashes differ"}},
  };
  Small sound;
  REQUIRE(sound.run_all().has_value());
  REQUIRE(sound.net.deliver_all(sound.random, sound.handler(sound.net)).has_value());
  for (Rank r = 0; r < 3; ++r) {
    CHECK(sound.ranks[r]->done());
    CHECK(sound.workers[r].totals[0] == 30);
    CHECK(sound.workers[r].received.size() == 2);
  }
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Small group;
    c.plant(group);
    Result<> result = group.run_all();
    if (result) result = group.net.deliver_all(group.random, group.handler(group.net));
    REQUIRE(!result.has_value());
    CHECK(result.error().code() == Code::kCorrupt);
    for (const char* text : c.says)
      CHECK_MESSAGE(result.error().text().find(text) != std::string::npos, result.error().text());
    for (const auto& rank : group.ranks) CHECK(!rank->done());
  }
}

TEST_CASE("reduce: a contribution that never arrives leaves all its holders undone") {
  Small group;
  REQUIRE(group.run_all().has_value());
  auto& lost = group.net.queue(1, 0);
  const auto contribution = std::find_if(lost.begin(), lost.end(), [](const Frame& f) {
    return f.header.kind == FrameKind::kContribution;
  });
  REQUIRE(contribution != lost.end());
  lost.erase(contribution);
  REQUIRE(group.net.deliver_all(group.random, group.handler(group.net)).has_value());
  for (const auto& rank : group.ranks) CHECK(!rank->done());
}

TEST_CASE("reduce: a malformed frame is refused and its sender named") {
  struct Case {
    const char* name;
    FrameKind kind;  // of the frame from rank 2 to rank 0 that is changed
    void (*change)(Frame&);
  };
  const auto contribution = FrameKind::kContribution;
  const auto side = FrameKind::kSide;
  const Case cases[] = {
      {"another step", contribution, [](Frame& f) { ++f.header.version; }},
      {"no segments", contribution, [](Frame& f) { f.header.count = 0; }},
      {"segments beyond the last", contribution, [](Frame& f) { f.header.count = ~0u; }},
      {"first beyond the last", contribution, [](Frame& f) { f.header.first = ~0u; }},
      {"too long", contribution, [](Frame& f) { f.payload = share(Bytes(f.payload->size() + 1)); }},
      {"empty", contribution, [](Frame& f) { f.payload = share({}); }},
      {"not our segment", contribution, [](Frame& f) { f.header.first = 1; }},
      {"a total of our own segment", contribution,
       [](Frame& f) { f.header.kind = FrameKind::kTotal; }},
      {"a total not from the owner", contribution,
       [](Frame& f) {
         f.header.kind = FrameKind::kTotal;
         f.header.first = 1;
       }},
      {"another kind", contribution, [](Frame& f) { f.header.kind = FrameKind::kMove; }},
      {"side entries of another length", side, [](Frame& f) { f.header.count = 1; }},
      {"a side entry of no block", side,
       [](Frame& f) {
         Bytes bytes = *f.payload;
         bytes[3] = 0xff;
         f.payload = share(std::move(bytes));
       }},
      {"a side entry of no micro-batch", side,
       [](Frame& f) {
         Bytes bytes = *f.payload;
         bytes[7] = 0xff;
         f.payload = share(std::move(bytes));
       }},
      {"a side entry of no use", side,
       [](Frame& f) {
         Bytes bytes = *f.payload;
         bytes[8] = 1;
         f.payload = share(std::move(bytes));
       }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Small group;
    REQUIRE(group.run_all().has_value());
    auto& queue = group.net.queue(2, 0);
    const auto found = std::find_if(queue.begin(), queue.end(),
                                    [&](const Frame& f) { return f.header.kind == c.kind; });
    REQUIRE(found != queue.end());
    Frame frame = *found;
    c.change(frame);
    const auto result = group.ranks[0]->on_frame(2, frame, group.net.end(0));
    REQUIRE(!result.has_value());
    CHECK(result.error().code() == Code::kCorrupt);
    CHECK_MESSAGE(result.error().text().find("from rank 2") != std::string::npos,
                  result.error().text());
  }
}

TEST_CASE("reduce: a peer's frame counts once, and its side entries are bounded") {
  Small group;
  REQUIRE(group.run_all().has_value());
  for (const FrameKind kind : {FrameKind::kContribution, FrameKind::kSide}) {
    auto& queue = group.net.queue(2, 0);
    const auto found = std::find_if(queue.begin(), queue.end(),
                                    [&](const Frame& f) { return f.header.kind == kind; });
    REQUIRE(found != queue.end());
    CHECK(group.ranks[0]->on_frame(2, *found, group.net.end(0)).has_value());
    const auto again = group.ranks[0]->on_frame(2, *found, group.net.end(0));
    REQUIRE(!again.has_value());
    CHECK_MESSAGE(again.error().text().find("from rank 2") != std::string::npos,
                  again.error().text());  // not only found later, by the lanes
  }
  FrameHeader header;
  header.kind = FrameKind::kSide;
  header.version = kStep;
  header.count = 1;
  const Frame frame = make_frame(header, share(Bytes(sizeof(SideEntry))));
  std::size_t taken = 0;
  while (group.ranks[0]->on_frame(1, frame, group.net.end(0)).has_value()) REQUIRE(++taken < 100);
  CHECK(taken == 6 * 2 - 2);  // M per held block, less the two of rank 2
}

}  // namespace
}  // namespace starling::collectives
