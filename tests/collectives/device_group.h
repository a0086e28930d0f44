#pragma once
// Whole epochs of one step in one process: ranks with all that a device has of a step (sums, totals,
// parameters), frames in memory, and a device transport in memory. What happens next is drawn from a
// seed.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/epoch.h"
#include "core/base/hash.h"
#include "core/base/weight.h"
#include "tests/collectives/memory_net.h"
#include "tests/collectives/memory_transport.h"

namespace starling::collectives::device_transport_test {

inline constexpr std::uint64_t kSeed = 17;
inline constexpr Version kStep = 6;
inline constexpr std::uint32_t kAttempt = 3;
inline constexpr std::int32_t kUntouched = 123;
using Table = std::vector<std::vector<Rank>>;

inline std::int32_t parameter(std::uint64_t element) {
  return static_cast<std::int32_t>(element * 2654435761u + 5);
}
inline std::int16_t exponent(std::uint32_t block) {
  return static_cast<std::int16_t>(block % 90);
}

// One rank's arrays.
struct Node : GatherSource, DeviceMemory {
  explicit Node(const Layout& of)
      : layout(of),
        own_sums(of.elements()),
        all_totals(of.elements(), kUntouched),
        all_parameters(of.elements(), kUntouched),
        all_exponents(of.blocks(), 77),
        lanes(of.segments()),
        total_lanes(of.segments()),
        written(of.segments()) {}

  template <class T>
  std::span<T> of(std::vector<T>& all, SegmentRange run) const {
    return std::span(all).subspan(layout.first_element(run.first), layout.elements(run));
  }
  std::span<std::int16_t> exponents_of(SegmentRange run) {
    return std::span(all_exponents).subspan(layout.first_block(run.first), layout.block_count(run));
  }
  static std::byte* at(std::span<std::int32_t> values) {
    return reinterpret_cast<std::byte*>(values.data());
  }
  static std::uint64_t checksum(SegmentId s, ByteView words, ByteView exponents) {
    return hash64(words, hash64(exponents, s));
  }
  // Each segment's parameters are written once.
  void write(SegmentRange run) {
    for (const SegmentId s : run) {
      CHECK_MESSAGE(!written[s], "segment " << s << " is written twice");
      written[s] = true;
    }
  }

  // GatherSource
  void publish(Version version, SegmentRange run) override {
    CHECK(version == kStep);
    write(run);
    const std::uint64_t first = layout.first_element(run.first);
    for (std::uint64_t i = first; i < first + layout.elements(run); ++i)
      all_parameters[i] = parameter(i);
    const std::uint32_t block = layout.first_block(run.first);
    for (std::uint32_t b = block; b < block + layout.block_count(run); ++b)
      all_exponents[b] = exponent(b);
  }
  Bytes params(SegmentRange run) override {
    ByteWriter out;
    for (const std::int32_t value : of(all_parameters, run)) out.put(value);
    for (const std::int16_t value : exponents_of(run)) out.put(value);
    return std::move(out).take();
  }
  std::vector<std::uint64_t> checksums(SegmentRange run) override {
    std::vector<std::uint64_t> sums;
    for (const SegmentId s : run)
      sums.push_back(checksum(s,
                              as_bytes(std::span<const std::int32_t>(of(all_parameters, {s, 1}))),
                              as_bytes(std::span<const std::int16_t>(exponents_of({s, 1})))));
    return sums;
  }
  Result<> set_params(Version, SegmentRange run, ByteView bytes) override {
    const auto words = of(all_parameters, run);
    const auto exponents = exponents_of(run);
    if (bytes.size() != words.size_bytes() + exponents.size_bytes())
      return Error(Code::kCorrupt, "parameters of the wrong size");
    write(run);
    std::memcpy(words.data(), bytes.data(), words.size_bytes());
    std::memcpy(exponents.data(), bytes.data() + words.size_bytes(), exponents.size_bytes());
    return ok();
  }

  // DeviceMemory
  std::byte* sums(SegmentRange run) override { return at(of(own_sums, run)); }
  std::byte* totals(SegmentRange run) override { return at(of(all_totals, run)); }
  void add(SegmentRange run, std::span<const std::byte* const> others) override {
    const auto total = of(all_totals, run);
    const auto own = of(own_sums, run);
    std::copy(own.begin(), own.end(), total.begin());
    for (const std::byte* from : others)
      for (std::size_t i = 0; i < total.size(); ++i) {
        std::uint32_t x;
        std::memcpy(&x, from + i * sizeof x, sizeof x);
        total[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(total[i]) + x);
      }
  }
  void take_totals(SegmentRange run, const std::byte* staged) override {
    std::memcpy(of(all_totals, run).data(), staged, layout.bytes_of(run, What::kSums));
  }
  std::size_t parameter_bytes(SegmentRange run) const override {
    return layout.bytes_of(run, What::kParameters);
  }
  std::byte* parameters(SegmentRange run) override { return at(of(all_parameters, run)); }
  Bytes proofs(SegmentRange run) override {
    ByteWriter out;
    for (const std::uint64_t sum : checksums(run)) out.put(sum);
    for (const std::int16_t value : exponents_of(run)) out.put(value);
    return std::move(out).take();
  }
  Result<> take_parameters(Version version, SegmentRange run, const std::byte* staged,
                           ByteView proofs) override {
    CHECK(version == kStep);
    ByteReader in(proofs);
    std::vector<std::uint64_t> sums(run.count);
    for (auto& sum : sums) sum = in.get<std::uint64_t>();
    std::vector<std::int16_t> exponents(layout.block_count(run));
    for (auto& value : exponents) value = in.get<std::int16_t>();
    if (!in.done()) return Error(Code::kCorrupt, "proofs of the wrong size");
    std::size_t word = 0, block = 0;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const SegmentId s = run.first + i;
      const ByteView words(reinterpret_cast<const std::uint8_t*>(staged) + word,
                           layout.bytes_of(s, What::kParameters));
      const std::span<const std::int16_t> exps(exponents.data() + block, layout.block_count(s));
      if (checksum(s, words, as_bytes(exps)) != sums[i])
        return Error(Code::kCorrupt, "what came for a segment is not what was published");
      word += words.size();
      block += exps.size();
    }
    write(run);
    std::memcpy(of(all_parameters, run).data(), staged, parameter_bytes(run));
    std::copy(exponents.begin(), exponents.end(), exponents_of(run).begin());
    return ok();
  }

  // The fifth lane against the total as it lies in memory: the first segment of these that differs.
  std::optional<SegmentId> wrong_total() const {
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      if (!held[s]) continue;
      std::uint64_t sum = 0;
      const std::uint64_t first = layout.first_element(s);
      for (std::uint64_t i = first; i < first + layout.elements(s); ++i)
        sum += weight_of(static_cast<std::uint32_t>(i)) *
               static_cast<std::uint64_t>(std::int64_t{all_totals[i]});
      if (sum != total_lanes[s].weighted_sum) return s;
    }
    return std::nullopt;
  }

  const Layout& layout;
  std::vector<std::int32_t> own_sums, all_totals, all_parameters;
  std::vector<std::int16_t> all_exponents;
  std::vector<ProofLanes> lanes, total_lanes;
  std::vector<bool> written;  // by segment: its parameters
  std::vector<SideEntry> own_side, received;
  // What came of it.
  std::optional<Epoch> frames;
  std::unique_ptr<DeviceTransport> transport;
  std::vector<bool> held;
  bool ready = false, failed = false, contributed = false, gathered = false, reduced = false;
  std::optional<epoch_event::Wrong> wrong;
  std::shared_ptr<std::byte> staging;
  std::size_t staging_size = 0;
};

// What a transport's staging memory is followed by: nothing may be written there.
inline constexpr std::size_t kBorder = 64;
inline constexpr std::byte kBorderByte{0x7e};

struct Shape {
  std::uint32_t world = 3;
  std::uint32_t segments = 20;  // about
  std::uint32_t copies = 2;     // most of a segment
  std::size_t round_bytes = 16 * kBlock;
  std::uint32_t attempt = kAttempt;  // 0: the step goes over the TCP transport
};

struct Group {
  Group(std::uint32_t seed, Shape of)
      : random(seed),
        shape(of),
        layout({{"a", {std::uint64_t{shape.segments} * (1 + seed % 3) * kBlock}}},
               /*segment_blocks=*/1 + seed % 3, /*bucket_segments=*/1 + seed % 5),
        net(shape.world),
        sum(layout.elements()),
        transports({[this](std::uint32_t ms, std::function<void()> what) {
                      (ms == 0 ? soon : deadlines).push_back(std::move(what));
                    },
                    [this](Rank rank, bool peer_gone) {
                      return fault ? fault(rank, peer_gone) : TransportFault::kNone;
                    }}) {
    for (Rank r = 0; r < shape.world; ++r) nodes.push_back(std::make_unique<Node>(layout));
    for (MicroBatch m = 0; m < kMicroBatches; ++m) compute(*nodes[random() % shape.world], m);
    make_plan();
    for (Rank r = 0; r < shape.world; ++r) begin_epoch(r);
    if (shape.world > 1) connect();
  }

  void compute(Node& node, MicroBatch m) {
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      ProofLanes& lanes = node.lanes[s];
      ++lanes.micro_batches;
      lanes.micro_batch_hashes += micro_batch_hash(kSeed, kStep, m, 0);
      if (random() % 8 == 0) {
        SideEntry entry{layout.first_block(s), m, 0, {}};
        entry.values[0] = static_cast<float>(random());
        ++lanes.side_entries;
        lanes.side_hashes += side_entry_hash(entry);
        node.own_side.push_back(entry);
      }
      const std::uint64_t first = layout.first_element(s);
      for (std::uint64_t i = first; i < first + layout.elements(s); ++i) {
        const auto q = static_cast<std::int32_t>(random() % 2001) - 1000;
        node.own_sums[i] += q;
        sum[i] += q;
        lanes.weighted_sum +=
            weight_of(static_cast<std::uint32_t>(i)) * static_cast<std::uint64_t>(std::int64_t{q});
      }
    }
  }

  void make_plan() {
    auto made = std::make_shared<Plan>();
    made->id = {1, 2};
    made->members.resize(shape.world);
    made->holders.resize(layout.segments());
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      auto& row = made->holders[s];
      // Neighbours often have the same holders, as placement makes them.
      if (s > 0 && random() % 3 != 0) {
        row = made->holders[s - 1];
        continue;
      }
      for (Rank r = 0; r < shape.world; ++r) row.push_back(r);
      std::shuffle(row.begin(), row.end(), random);
      row.resize(1 + random() % std::min(shape.world, shape.copies));
    }
    plan = made;
    for (Rank r = 0; r < shape.world; ++r)
      for (const auto& row : plan->holders)
        nodes[r]->held.push_back(std::ranges::find(row, r) != row.end());
  }

  void begin_epoch(Rank r) {
    Node& node = *nodes[r];
    EpochOptions options{.plan = plan, .self = r, .version = kStep};
    options.memory = &node;
    options.round_bytes = shape.round_bytes;
    node.frames.emplace(options, layout, node, net.end(r));
  }

  void connect() {
    const Bytes id = transports.make_id().value();
    for (Rank r = 0; r < shape.world; ++r) {
      Node& node = *nodes[r];
      TransportOptions options;
      options.self = r;
      options.world = shape.world;
      options.id = id;
      options.staging_bytes =
          staging_bytes(layout, plan->holders, shape.world, r, shape.round_bytes);
      options.allocate = [&node](std::size_t bytes) {
        node.staging_size = bytes;
        node.staging = std::shared_ptr<std::byte>(new std::byte[bytes + kBorder],
                                                  std::default_delete<std::byte[]>());
        std::fill_n(node.staging.get() + bytes, kBorder, kBorderByte);
        return node.staging;
      };
      TransportEvents events;
      events.on_ready = [&node] {
        node.ready = true;
        node.frames->use(*node.transport, kAttempt);
      };
      events.on_failed = [this, r](Error why) {
        nodes[r]->failed = true;
        take(r, nodes[r]->frames->lose_transport(kAttempt, std::move(why)));
      };
      events.on_round = [this, r](Result<> ended) {
        ++rounds;
        take(r, nodes[r]->frames->on_round(kAttempt, std::move(ended)));
      };
      node.transport = transports.connect(std::move(options), std::move(events));
    }
    while (one_soon()) {
    }
  }

  void begin_step(Rank r) {
    Node& node = *nodes[r];
    const Holders holders(plan, &plan->holders);
    std::vector<bool> contributors;  // each micro-batch adds to every segment
    for (const auto& one : nodes) contributors.push_back(one->lanes[0].micro_batches > 0);
    node.frames->open_step(holders, contributors, shape.attempt);
    StepRecord record;
    record.version = kStep - 1;
    take(r, node.frames->gather(kStep, holders, record));
  }
  void reduce(Rank r) {
    Node& node = *nodes[r];
    Sums sums{&layout,         node.own_sums,    node.lanes,
              node.all_totals, node.total_lanes, &node.received};
    if (shape.attempt != 0) sums.accumulators = {}, sums.totals = {};  // another device's
    take(r, node.frames->begin_reduce(kStep, sums, CompleteLanes(kSeed, kStep, kMicroBatches)));
    for (std::uint32_t b = layout.buckets(); b-- > 0;) take(r, node.frames->contribute(b));
    node.contributed = true;
    end_share_if_due(r);
  }
  void end_share_if_due(Rank r) {
    if (!nodes[r]->gathered || !nodes[r]->contributed || computing == r) return;
    todo.push_back([this, r] { take(r, nodes[r]->frames->end_share(nodes[r]->own_side)); });
  }
  void take(Rank r, EpochEvents events) {
    Node& node = *nodes[r];
    for (auto& event : events) {
      CHECK(!node.wrong);
      if (std::holds_alternative<epoch_event::Gathered>(event)) {
        CHECK(!node.gathered);
        node.gathered = true;
        end_share_if_due(r);
      }
      if (std::holds_alternative<epoch_event::Reduced>(event)) {
        CHECK(!node.reduced);
        node.reduced = true;
      }
      if (auto* wrong = std::get_if<epoch_event::Wrong>(&event)) node.wrong = std::move(*wrong);
    }
  }

  // One of the things that can happen, whichever; false: nothing can but a deadline.
  bool one_soon() {
    std::vector<std::size_t> kinds;
    const bool frames = !only_rounds && net_waits();
    if (frames) kinds.push_back(0);
    if (!soon.empty() && !(only_frames && frames)) kinds.push_back(1);
    if (!todo.empty()) kinds.push_back(2);
    if (kinds.empty()) return false;
    const std::size_t kind = kinds[random() % kinds.size()];
    if (kind == 0) {
      Result<> result = ok();
      return net.deliver_one(
          random,
          [this](Rank to, Rank from, const Frame& frame) {
            take(to, nodes[to]->frames->on_frame(from, frame));
            return Result<>(ok());
          },
          &result);
    }
    auto& list = kind == 1 ? soon : todo;
    const std::size_t which = random() % list.size();
    const auto action = std::move(list[which]);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(which));
    action();
    return true;
  }
  bool net_waits() {
    for (Rank a = 0; a < shape.world; ++a)
      for (Rank b = 0; b < shape.world; ++b)
        if (a != b && !net.queue(a, b).empty()) return true;
    return false;
  }
  void run() {
    begin();
    while (one_soon()) {
    }
  }
  void begin() {
    std::vector<Rank> order;
    for (Rank r = 0; r < shape.world; ++r) order.push_back(r);
    std::shuffle(order.begin(), order.end(), random);
    for (const Rank r : order) {
      todo.push_back([this, r] {
        begin_step(r);
        todo.push_back([this, r] { reduce(r); });
      });
    }
  }
  void time_passes() {
    for (auto& action : std::exchange(deadlines, {})) action();
    while (one_soon()) {
    }
  }

  // Everybody has what it is to have, and nothing else was touched.
  void check_all() const {
    for (Rank r = 0; r < shape.world; ++r) {
      CAPTURE(r);
      const Node& node = *nodes[r];
      if (node.wrong) FAIL_CHECK(node.wrong->error.text());
      CHECK(node.gathered);
      CHECK(node.reduced);
      check_parameters(node);
      for (std::uint64_t i = 0; i < layout.elements(); ++i) {
        const SegmentId s = layout.segment_of(static_cast<std::uint32_t>(i / kBlock));
        if (node.all_totals[i] != (node.held[s] ? sum[i] : kUntouched)) {
          FAIL_CHECK("total of element " << i);
          break;
        }
      }
      CHECK(!node.wrong_total());
      check_border(node);
    }
  }
  void check_parameters(const Node& node) const {
    for (std::uint64_t i = 0; i < layout.elements(); ++i)
      if (node.all_parameters[i] != parameter(i)) {
        FAIL_CHECK("parameter of element " << i);
        break;
      }
    for (std::uint32_t b = 0; b < layout.blocks(); ++b)
      if (node.all_exponents[b] != exponent(b)) {
        FAIL_CHECK("exponent of block " << b);
        break;
      }
  }
  static void check_border(const Node& node) {
    for (std::size_t i = 0; node.staging && i < kBorder; ++i)
      if (node.staging.get()[node.staging_size + i] != kBorderByte) {
        FAIL_CHECK("more was received than there is staging memory");
        break;
      }
  }

  static constexpr std::uint32_t kMicroBatches = 5;
  std::mt19937 random;
  const Shape shape;
  const Layout layout;
  MemoryNet net;
  std::vector<std::int32_t> sum;  // of all micro-batches, in one loop
  std::vector<std::function<void()>> soon, deadlines, todo;
  std::function<TransportFault(Rank, bool)> fault;
  std::optional<Rank> computing;                  // whose share does not end
  bool only_frames = false, only_rounds = false;  // before the others
  std::uint64_t rounds = 0;                       // that ended
  MemoryTransports transports;
  std::shared_ptr<const Plan> plan;
  std::vector<std::unique_ptr<Node>> nodes;
};

}  // namespace starling::collectives::device_transport_test
