// The loop against a peer that is the test itself, over real connections.

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "collectives/gather.h"
#include "core/wire/step_codec.h"
#include "tests/actors/live_worker.h"
#include "tests/collectives/node.h"

namespace starling::actors {
namespace {

const JobId kLoopJob{{1}};
const Incarnation kPeer{1, 100};

// A loop that has joined, and the other end of its connections.
struct Pair {
  explicit Pair(std::uint64_t parameters = 1000)
      : setup(synthetic_setup(parameters, /*steps=*/10)) {
    rig.on_said = [this](const Message& m) {
      if (const auto* r = std::get_if<Report>(&m)) report = *r;
    };
    rig.on_order = [this](ComputeOrder order) { ordered = std::move(order); };
    rig.loop->start();
  }
  Member engine_member() const {
    return {rig.who, "loop", "127.0.0.1", rig.listener->port(), {}, false, false};
  }
  Member peer_member() const {
    return {kPeer, "peer", "127.0.0.1", listener->port(), {}, false, false};
  }
  void commit(const Plan& plan) { rig.loop->on_message(Committed{plan}); }
  // The peer's end of this plan's connections.
  void connect_peer(const Plan& plan, Rank self) {
    collectives::MeshOptions options;
    options.job = kLoopJob;
    options.epoch = plan.id;
    options.key = plan.key;
    options.self = self;
    for (const Member& m : plan.members) options.peers.push_back({m.who, m.host, m.port});
    peer.emplace(options, *listener);
    peer->mesh->start();
  }

  const std::shared_ptr<const TrainingSetup> setup;
  const Layout& layout = *setup->layout;
  LoopRig rig{setup, kLoopJob, 200};
  std::unique_ptr<collectives::Listener> listener = collectives::open_listener();
  std::optional<collectives::Node> peer;
  std::optional<Report> report;
  std::optional<ComputeOrder> ordered;
};

// What the peer has at version 1.
class PeerState : public collectives::GatherSource {
 public:
  explicit PeerState(const TrainingSetup& setup) : state(*setup.layout, setup.job) {
    for (SegmentId s = 0; s < setup.layout->segments(); ++s) {
      state.hold(s);
      all.push_back(s);
    }
    state.initialise(initial_parameters(setup), setup.exponents);
    kernels::Totals totals(*setup.layout, setup.job.micro_batches);
    totals.set_pending(0);
    state.apply(totals, record, all);
    state.publish(all);
  }
  void publish(Version, SegmentRange) override {}
  std::vector<std::uint64_t> checksums(SegmentRange segments) override {
    return state.published(segments);
  }
  Bytes params(SegmentRange segments) override {
    return state.params_bytes(std::span<const SegmentRange>(&segments, 1));
  }
  Result<> set_params(Version, SegmentRange, ByteView) override { return ok(); }

  StepRecord record{.version = 0, .norm = 1, .skipped = true};
  kernels::State state;
  std::vector<SegmentId> all;
};

// Sends what is of segments below this one alone.
class UpTo : public collectives::FrameSender {
 public:
  UpTo(collectives::FrameSender& sender, SegmentId past) : sender_(sender), past_(past) {}
  Rank self() const override { return sender_.self(); }
  std::uint32_t world() const override { return sender_.world(); }
  void send(Rank to, FrameHeader header, collectives::Payload payload) override {
    if (header.first < past_) sender_.send(to, header, std::move(payload));
  }

 private:
  collectives::FrameSender& sender_;
  const SegmentId past_;
};

FrameHeader header(FrameKind kind, Version version, SegmentRange segments = {}) {
  FrameHeader header;
  header.kind = kind;
  header.version = version;
  header.first = segments.first;
  header.count = segments.count;
  return header;
}

}  // namespace

// Frames wait for a joiner's first gather frame and are then delivered at one go: of these the
// second vote breaks the epoch. The data plane may take the move behind it before it hears that; the
// worker must not say that it has the copy, and does not have it in the next epoch.
TEST_CASE("worker loop: what comes behind a frame that breaks its epoch does not count (R1)") {
  Pair pair;
  REQUIRE(pair.layout.segments() > 1);
  const SegmentRange moved{0, 1};
  Plan plan;
  plan.id = {1, 2};
  plan.predecessor = {1, 1};
  plan.kind = PlanKind::kPrepared;
  plan.members = {pair.peer_member(), pair.engine_member()};
  plan.members[1].joiner = true;
  plan.holders.assign(pair.layout.segments(), {0});
  plan.moves = {{moved, 0, 1, 0}};
  pair.commit(plan);
  pair.connect_peer(plan, /*self=*/0);
  pair.peer->wait([](const auto& told) { return told.connected; });

  PeerState state(*pair.setup);
  Vote vote;
  vote.version = 1;
  const auto send = [&](FrameHeader h, Bytes bytes) {
    pair.peer->mesh->send(1, h, collectives::Payload(share(std::move(bytes))));
  };
  send(header(FrameKind::kVote, 1), encode_vote(vote));
  send(header(FrameKind::kVote, 1), encode_vote(vote));
  ByteWriter move;
  move.put_sized(encode_record(state.record));
  move.put_bytes(state.state.state_bytes(moved));
  send(header(FrameKind::kMove, 1, moved), std::move(move).take());
  const auto shared = std::make_shared<const Plan>(plan);
  collectives::Gather gather(pair.layout, {shared, &shared->holders},
                             {0, 2, 1, encode_record(state.record)}, state);
  gather.start(*pair.peer->mesh);

  pair.rig.until([&] { return pair.report.has_value(); });
  CHECK(pair.report->version == 1);  // the gather frame was taken
  CHECK(pair.report->broken == std::vector<Incarnation>{kPeer});
  CHECK_FALSE(pair.report->copies[0]);

  Plan next;
  next.id = pair.report->promise;
  next.predecessor = plan.id;
  next.kind = PlanKind::kForced;
  next.base = 1;
  next.begin = BeginAt::kGather;
  next.members = {pair.peer_member(), pair.engine_member()};
  next.holders.assign(pair.layout.segments(), {0});
  pair.commit(next);
  pair.connect_peer(next, /*self=*/0);
  pair.peer->wait([](const auto& told) { return told.connected; });
  pair.rig.loop->stop();
  CHECK_FALSE(pair.rig.loop->memory()->state().holds(0));
}

// ThreadSanitizer tells if the loop writes what is being read.
TEST_CASE("worker loop: a fresh start after a loss in the first step leaves running passes alone") {
  Pair pair;
  Plan first;
  first.id = {1, 1};
  first.members = {pair.engine_member(), pair.peer_member()};
  for (SegmentId s = 0; s < pair.layout.segments(); ++s) first.holders.push_back({Rank(s % 2)});
  first.shares = {0, 0, 1, 1};
  pair.commit(first);
  pair.connect_peer(first, /*self=*/1);
  pair.rig.until([&] { return pair.ordered.has_value(); });
  CHECK(pair.ordered->micro_batches == std::vector<MicroBatch>{0, 1});

  // A pass that goes on for as long as the test wants, without any lock or fence that would order
  // it with what the loop does.
  const auto bench = pair.rig.loop->workbench();
  const std::vector<float> initial = initial_parameters(*pair.setup);
  std::atomic<bool> pass_over{false};
  std::atomic<std::uint64_t> looks{0};
  std::uint64_t different = 0;
  std::thread pass([&] {
    do {
      const kernels::Working now = bench->working();
      different += !std::equal(initial.begin(), initial.end(), now.parameters);
      different +=
          !std::equal(pair.setup->exponents.begin(), pair.setup->exponents.end(), now.exponents);
      looks.fetch_add(1, std::memory_order_relaxed);
    } while (!pass_over.load(std::memory_order_relaxed));
  });
  const auto looks_again = [&] {
    const auto before = looks.load(std::memory_order_relaxed);
    while (looks.load(std::memory_order_relaxed) < before + 2) std::this_thread::yield();
  };
  looks_again();

  // A connection that never stood is dialled again, not reported.
  pair.peer->wait([](const collectives::Node::Told& told) { return told.connected; });
  pair.peer->mesh->stop();
  pair.rig.until([&] { return pair.report.has_value(); });
  CHECK(pair.report->share == std::vector<MicroBatch>{0, 1});
  Plan second;
  second.id = pair.report->promise;
  second.predecessor = first.id;
  second.members = {pair.engine_member()};
  second.holders.assign(pair.layout.segments(), {0});
  second.shares = {0, 0, 0, 0};
  pair.ordered.reset();
  pair.commit(second);
  pair.rig.until([&] { return pair.ordered.has_value(); });
  looks_again();
  pass_over.store(true, std::memory_order_relaxed);
  pass.join();

  CHECK(different == 0);
  pair.rig.loop->stop();
  const kernels::State& state = pair.rig.loop->memory()->state();
  PeerState alone(*pair.setup);
  alone.state.initialise(initial, pair.setup->exponents);
  CHECK(state.digest_part(alone.all) == alone.state.digest_part(alone.all));
  for (const SegmentId s : alone.all) CHECK(state.label(s) == 0);
}

// Goal: what is final is sent while the rest is computed, and nothing else is. Method: the peer owns
// everything; of the last micro-batch of the share the test adds one part after the other, from the
// last on, and waits until the buckets that are complete have come.
TEST_CASE("worker loop: the sums of a bucket leave when the share has been added to all of it") {
  Pair pair(3'500'000);
  const Layout& layout = pair.layout;
  REQUIRE(layout.buckets() > 2);
  Plan plan;
  plan.id = {1, 1};
  plan.members = {pair.engine_member(), pair.peer_member()};
  plan.holders.assign(layout.segments(), {1});
  plan.shares = {0, 0, 1, 1};
  pair.commit(plan);
  pair.connect_peer(plan, /*self=*/1);
  pair.rig.until([&] { return pair.ordered.has_value(); });
  REQUIRE(pair.ordered->micro_batches == std::vector<MicroBatch>{0, 1});

  const auto bench = pair.rig.loop->workbench();
  const auto queue = pair.setup->device->make_queue();
  const std::vector<float> zeros(layout.largest_part());
  const auto parts = static_cast<std::uint32_t>(layout.parts().size());
  const auto sent = [](const auto& told) {  // segments whose sums have come
    std::set<SegmentId> segments;
    for (const auto& [from, frame] : told.frames)
      if (frame.header.kind == FrameKind::kContribution)
        for (const SegmentId s : SegmentRange{SegmentId(frame.header.first), frame.header.count})
          segments.insert(s);
    return segments;
  };
  const auto ended = [](const auto& told) {
    return std::ranges::any_of(told.frames, [](const auto& f) {
      return f.second.header.kind == FrameKind::kLedger || f.second.header.kind == FrameKind::kSide;
    });
  };

  auto first = bench->begin(*queue, 0, 0);
  for (PartId p = 0; p < parts; ++p) first.add(p, 0, zeros.data());
  bench->finish(first);
  auto second = bench->begin(*queue, 0, 1);
  for (std::uint32_t left = parts; left-- > 0;) {
    const PartId p(left);
    CHECK(sent(pair.peer->told()).size() < layout.segments());
    second.add(p, 0, zeros.data());
    std::set<SegmentId> complete;
    for (std::uint32_t b = 0; b < layout.buckets(); ++b) {
      const SegmentRange bucket = layout.bucket(b);
      if (bucket.first < layout.parts()[p].segments.first) continue;
      for (const SegmentId s : bucket) complete.insert(s);
    }
    pair.peer->wait([&](const auto& told) { return sent(told).size() >= complete.size(); });
    CHECK(sent(pair.peer->told()) == complete);
  }
  CHECK_FALSE(ended(pair.peer->told()));
  bench->finish(second);
  for (const MicroBatch m : {MicroBatch(0), MicroBatch(1)}) {
    LedgerRow row;
    row.micro_batch = m;
    pair.rig.loop->on_micro_batch(0, row, std::chrono::milliseconds(1));
  }
  pair.peer->wait(ended);
}

// Goal: a pass reads the first parts while the others come, and over the end of an epoch. Method: the
// peer owns all; it sends half of the buckets, breaks the epoch, and sends everything in the next.
// ThreadSanitizer tells if what a pass may read is written again.
TEST_CASE(
    "worker loop: parameters that are there are read while others come, and are not written "
    "again") {
  Pair pair(3'500'000);
  const Layout& layout = pair.layout;
  const std::uint32_t half = layout.buckets() / 2;
  const Part& first = layout.parts().front();
  REQUIRE(layout.parts().size() > 1);
  REQUIRE(first.segments.past() <= layout.bucket(half).first);
  Plan plan;
  plan.id = {1, 2};
  plan.predecessor = {1, 1};
  plan.kind = PlanKind::kPrepared;
  plan.members = {pair.peer_member(), pair.engine_member()};
  plan.members[1].joiner = true;
  plan.holders.assign(layout.segments(), {0});
  pair.commit(plan);
  pair.connect_peer(plan, /*self=*/0);
  pair.peer->wait([](const auto& told) { return told.connected; });
  PeerState state(*pair.setup);
  const auto gather_of = [&](const Plan& p) {
    const auto shared = std::make_shared<const Plan>(p);
    return collectives::Gather(layout, {shared, &shared->holders},
                               {0, 2, 1, encode_record(state.record)}, state);
  };
  collectives::Gather begun = gather_of(plan);
  UpTo first_half(*pair.peer->mesh, layout.bucket(half).first);
  begun.start(first_half);
  pair.rig.until([&] { return pair.ordered.has_value(); });
  CHECK(pair.ordered->version == 1);

  const auto bench = pair.rig.loop->workbench();
  bench->wait(0, 1);
  const std::span expected = state.state.parameters().subspan(first.first(), first.elements());
  std::atomic<bool> pass_over{false};
  std::uint64_t different = 0;
  std::thread pass([&] {  // without a lock or fence that would order it with the data plane
    do
      different += !std::equal(expected.begin(), expected.end(),
                               bench->working().parameters + first.first());
    while (!pass_over.load(std::memory_order_relaxed));
  });

  pair.peer->mesh->stop();
  pair.rig.until([&] { return pair.report.has_value(); });
  CHECK(pair.report->version == 1);
  CHECK_FALSE(pair.report->parameters_complete);
  Plan next;
  next.id = pair.report->promise;
  next.predecessor = plan.id;
  next.kind = PlanKind::kForced;
  next.base = 1;
  next.begin = BeginAt::kGather;
  next.members = {pair.peer_member(), pair.engine_member()};
  next.holders.assign(layout.segments(), {0});
  pair.commit(next);
  pair.connect_peer(next, /*self=*/0);
  pair.peer->wait([](const auto& told) { return told.connected; });
  collectives::Gather again = gather_of(next);
  again.start(*pair.peer->mesh);
  std::atomic<bool> all_there{false};
  std::thread rest([&] {
    for (PartId p = 0; p < layout.parts().size(); ++p) bench->wait(p, 1);
    all_there = true;
  });
  while (!all_there) pair.rig.drive(std::chrono::milliseconds(1));
  rest.join();
  pass_over = true;
  pass.join();
  CHECK(different == 0);
  pair.rig.loop->stop();
  const kernels::State& mine = pair.rig.loop->memory()->state();
  CHECK(mine.parameters_part(state.all) == state.state.parameters_part(state.all));
}

// The data plane is held while it says that the first state is there, as by work that takes long or
// hangs.
TEST_CASE(
    "worker loop: a worker whose data plane is busy is heard, and says that it gets nowhere") {
  auto setup = std::make_shared<TrainingSetup>(*synthetic_setup(40000, /*steps=*/10));
  setup->job.elastic.lease_ms = 1;
  const std::uint32_t segments = setup->layout->segments();
  std::mutex gate;
  LoopRig rig{setup, kLoopJob, 200};
  rig.before_post = [&] { const std::lock_guard lock(gate); };
  Computer computer(setup, rig, [](Version) {});
  std::vector<Heartbeat> heard;
  std::optional<Progress> passed;
  rig.on_said = [&](const Message& m) {
    if (const auto* beat = std::get_if<Heartbeat>(&m)) heard.push_back(*beat);
    if (const auto* progress = std::get_if<Progress>(&m)) passed = *progress;
  };
  rig.on_order = [&](ComputeOrder order) { computer.order(std::move(order)); };
  rig.loop->start();
  std::unique_lock busy(gate);
  Plan plan;
  plan.id = {1, 1};
  plan.members = {{rig.who, "loop", "127.0.0.1", rig.listener->port(), {}, false, false}};
  plan.holders.assign(segments, {0});
  plan.shares = {0, 0, 0, 0};
  rig.loop->on_message(Committed{plan});
  const auto stands_still = [&] {
    const std::size_t n = heard.size();
    return n > 2 && heard[n - 1].orders_left > 0 &&
           heard[n - 1].orders_left == heard[n - 3].orders_left &&
           heard[n - 1].progress == heard[n - 3].progress;
  };
  while (!stands_still()) {
    rig.loop->tick();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::uint64_t before = heard.back().progress;

  busy.unlock();
  rig.until([&] { return passed.has_value(); });
  while (heard.back().orders_left > 0 || heard.back().progress == before) {
    rig.loop->tick();
    rig.drive(std::chrono::milliseconds(2));
  }
  CHECK(heard.back().progress - before >= segments / 4);  // it counts pieces, not orders
}

}  // namespace starling::actors
