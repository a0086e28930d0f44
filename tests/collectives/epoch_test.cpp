#include "collectives/epoch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "core/wire/step_codec.h"
#include "tests/collectives/memory_net.h"

namespace starling::collectives {
namespace {

using namespace epoch_event;
using Table = std::vector<std::vector<Rank>>;

constexpr std::uint64_t kEpochSeed = 3;

StepRecord record_of(Version version) {
  StepRecord record;
  record.version = version;
  record.loss = static_cast<double>(version) / 4;
  return record;
}

Vote vote_of(Version version) {
  Vote vote;
  vote.version = version;
  return vote;
}

// What happened, in order: "reduced 5", "vote 5 of 1".
std::string text(const EpochEvent& event) {
  struct Text {
    std::string operator()(const Reduced& e) const {
      return "reduced " + std::to_string(e.version);
    }
    std::string operator()(const GatherBegun& e) const {
      return "begun " + std::to_string(e.version) + " after " + std::to_string(e.record.version);
    }
    std::string operator()(const Gathered& e) const {
      return "gathered " + std::to_string(e.version);
    }
    std::string operator()(const CopyDiffers& e) const {
      return "copy of " + std::to_string(e.segment) + " differs from that of " +
             std::to_string(e.owner);
    }
    std::string operator()(const MoveArrived& e) const {
      return "move of " + std::to_string(e.from) + " at " + std::to_string(e.version) + ": " +
             std::string(e.states.begin(), e.states.end());
    }
    std::string operator()(const LedgerArrived& e) const {
      return "ledger " + std::to_string(e.version) + " of " + std::to_string(e.from);
    }
    std::string operator()(const VoteArrived& e) const {
      return "vote " + std::to_string(e.vote.version) + " of " + std::to_string(e.from);
    }
    std::string operator()(const PeerReady& e) const { return "ready " + std::to_string(e.from); }
    std::string operator()(const Wrong& e) const {
      return "wrong " + std::to_string(e.peer) + ": " + e.error.text();
    }
  };
  return std::visit(Text(), event);
}

std::vector<std::string> texts(const EpochEvents& events) {
  std::vector<std::string> out;
  for (const auto& event : events) out.push_back(text(event));
  return out;
}

using Texts = std::vector<std::string>;

// One rank: arrays of one segment a bucket, and one byte of parameters for each.
struct EpochNode : GatherSource {
  EpochNode(const std::shared_ptr<const Plan>& plan, Rank self, bool joiner, Version version,
            const Layout& of, FrameSender& sender, SessionLimits limits = {})
      : layout(of),
        accumulators(of.elements(), 1 + static_cast<std::int32_t>(self)),
        totals(of.elements()),
        lanes(of.segments()),
        total_lanes(of.segments()),
        values(of.segments()),
        frames({plan, self, joiner, version, limits}, of, *this, sender) {}

  // Working parameters are the version, wrong ones one more.
  void publish(Version version, SegmentRange segments) override {
    for (const SegmentId s : segments) values[s] = static_cast<std::uint8_t>(version + wrong);
  }
  std::vector<std::uint64_t> checksums(SegmentRange segments) override {
    return {values.begin() + segments.first, values.begin() + segments.first + segments.count};
  }
  Bytes params(SegmentRange segments) override {
    return {values.begin() + segments.first, values.begin() + segments.first + segments.count};
  }
  Result<> set_params(Version, SegmentRange segments, ByteView bytes) override {
    if (bytes.size() != segments.count) return Error(Code::kCorrupt, "wrong size");
    std::copy(bytes.begin(), bytes.end(), values.begin() + segments.first);
    return ok();
  }
  // As if this rank had computed micro-batch `self`.
  void compute(Version step) {
    for (auto& lane : lanes) {
      lane = {};
      lane.micro_batches = 1;
      lane.micro_batch_hashes =
          micro_batch_hash(kEpochSeed, step, MicroBatch(frames.self().value()));
    }
  }
  EpochEvents reduce(Version step) {
    received.clear();
    EpochEvents events =
        frames.begin_reduce(step, {&layout, accumulators, lanes, totals, total_lanes, &received},
                            CompleteLanes(kEpochSeed, step, frames.world()));
    for (std::uint32_t b = layout.buckets(); b-- > 0;)
      for (auto& event : frames.contribute(b)) events.push_back(std::move(event));
    for (auto& event : frames.end_share({})) events.push_back(std::move(event));
    return events;
  }

  const Layout& layout;
  std::vector<std::int32_t> accumulators, totals;
  std::vector<ProofLanes> lanes, total_lanes;
  std::vector<SideEntry> received;
  Bytes values;
  std::uint8_t wrong = 0;
  Epoch frames;
};

// Ranks of an epoch at version 5, of which the last `joiners` know no version. Segment s is owned by
// rank s of those who are no joiners, and the next one has a copy.
struct EpochGroup {
  explicit EpochGroup(std::uint32_t world, std::uint32_t joiners = 0, Version version = 5,
                      SessionLimits limits = {})
      : layout({{"a", {6 * kBlock}}}, 1, 2), net(world) {
    auto made = std::make_shared<Plan>();
    made->id = {1, 2};
    made->members.resize(world);
    const std::uint32_t owners = world - joiners;
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      made->holders.push_back({static_cast<Rank>(s % owners)});
      if (owners > 1) made->holders.back().push_back(static_cast<Rank>((s + 1) % owners));
    }
    plan = made;
    for (Rank r = 0; r < world; ++r) {
      const bool joins = r >= owners;
      nodes.push_back(std::make_unique<EpochNode>(plan, r, joins, joins ? kNoVersion : version,
                                                  layout, net.end(r), limits));
    }
  }
  Holders holders() const { return {plan, &plan->holders}; }
  std::vector<bool> all() const { return std::vector<bool>(plan->members.size(), true); }
  Epoch& frames(Rank r) { return nodes[r]->frames; }
  // The oldest frame from one rank to another arrives.
  Texts arrives(Rank from, Rank to) {
    REQUIRE_FALSE(net.queue(from, to).empty());
    const Frame frame = std::move(net.queue(from, to).front());
    net.queue(from, to).pop_front();
    return texts(frames(to).on_frame(from, frame));
  }
  Texts all_arrive(Rank from, Rank to) {
    Texts all;
    while (!net.queue(from, to).empty())
      for (auto& one : arrives(from, to)) all.push_back(std::move(one));
    return all;
  }

  const Layout layout;
  MemoryNet net;
  std::shared_ptr<const Plan> plan;
  std::vector<std::unique_ptr<EpochNode>> nodes;
};

// Each rank does what the machine of a worker would tell it, as soon as it may.
struct Steps {
  Steps(EpochGroup& of, std::uint64_t steps) : group(of), last(5 + steps) {}

  void begin(Rank r) {
    Epoch& frames = group.frames(r);
    frames.open_step(group.holders(), group.all());
    take(r, frames.gather(at(r), group.holders(), record_of(at(r) - 1)));
  }
  void take(Rank r, EpochEvents events) {
    for (auto& event : events) {
      REQUIRE_MESSAGE(!std::holds_alternative<Wrong>(event), text(event));
      if (std::holds_alternative<Gathered>(event)) reduce(r);
      if (std::holds_alternative<Reduced>(event)) vote(r);
      if (std::holds_alternative<VoteArrived>(event)) count(r);
      if (std::holds_alternative<LedgerArrived>(event)) ++ledgers;
    }
  }
  void reduce(Rank r) {
    for (SegmentId s = 0; s < group.layout.segments(); ++s)
      CHECK(group.nodes[r]->values[s] == at(r));
    group.nodes[r]->compute(at(r));
    group.frames(r).send_ledger(at(r), {});
    take(r, group.nodes[r]->reduce(at(r)));
  }
  void vote(Rank r) {
    const std::uint32_t world = group.frames(r).world();
    for (SegmentId s = 0; s < group.layout.segments(); ++s) {
      const auto& ranks = group.plan->holders[s];
      const bool held = std::find(ranks.begin(), ranks.end(), r) != ranks.end();
      const auto want = static_cast<std::int32_t>(world * (world + 1) / 2);
      if (held) CHECK(group.nodes[r]->totals[s * kBlock] == want);
    }
    group.frames(r).send_vote(vote_of(at(r)));
    count(r);
  }
  void count(Rank r) {
    if (++votes[r] < group.frames(r).world()) return;
    votes[r] = 0;
    ++version[r];
    if (at(r) == last) return;
    take(r, group.frames(r).set_version(at(r)));
    begin(r);
  }
  Version at(Rank r) { return version.try_emplace(r, 5).first->second; }

  EpochGroup& group;
  const Version last;
  std::map<Rank, Version> version;
  std::map<Rank, std::uint32_t> votes;
  std::size_t ledgers = 0;
};

}  // namespace

TEST_CASE("epoch: steps pass whatever the order in which frames of different ranks arrive") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::uint32_t world = 1 + seed % 5;
    EpochGroup group(world);
    Steps steps(group, /*steps=*/4);
    for (Rank r = 0; r < world; ++r) steps.begin(r);
    const auto delivered = group.net.deliver_all(random, [&](Rank to, Rank from, const Frame& f) {
      steps.take(to, group.frames(to).on_frame(from, f));
      return Result<>(ok());
    });
    REQUIRE(delivered.has_value());
    for (Rank r = 0; r < world; ++r) CHECK(steps.at(r) == 9);
    CHECK(steps.ledgers == 4u * world * (world - 1));
  }
}

TEST_CASE("epoch: until it is entered all frames wait but the word ready") {
  EpochGroup group(2, /*joiners=*/0, kNoVersion);
  group.frames(1).send_ready();
  group.frames(1).send_vote(vote_of(7));
  group.frames(1).send_vote(vote_of(8));
  CHECK(group.all_arrive(1, 0) == Texts{"ready 1"});
  CHECK(group.frames(0).version() == kNoVersion);
  CHECK(texts(group.frames(0).set_version(7)) == Texts{"vote 7 of 1"});
  CHECK(texts(group.frames(0).set_version(8)) == Texts{"vote 8 of 1"});
}

TEST_CASE("epoch: a joiner enters with the first gather frame, and what came before it follows") {
  EpochGroup group(3, /*joiners=*/1);
  group.frames(1).send_vote(vote_of(5));
  CHECK(group.all_arrive(1, 2).empty());
  group.frames(0).open_step(group.holders(), group.all());
  group.frames(0).gather(5, group.holders(), record_of(4));
  CHECK(group.arrives(0, 2) == Texts{"begun 5 after 4", "vote 5 of 1"});
  CHECK(group.frames(2).version() == 5);
  CHECK(group.all_arrive(0, 2).empty());
  // Its own gather goes on with what has come: it is complete with the other owner's.
  CHECK(group.frames(2).gather(5, group.holders(), record_of(4)).empty());
  group.frames(1).gather(5, group.holders(), record_of(4));
  CHECK(group.all_arrive(1, 2) == Texts{"gathered 5"});
}

TEST_CASE("epoch: a version whose copies differ is not complete") {
  EpochGroup group(2);  // each has a copy of what the other owns
  group.nodes[1]->wrong = 1;
  for (Rank r = 0; r < 2; ++r) {
    group.frames(r).open_step(group.holders(), group.all());
    CHECK(group.frames(r).gather(5, group.holders(), record_of(4)).empty());
  }
  CHECK(group.arrives(0, 1) == Texts{"copy of 0 differs from that of 0"});
  CHECK(group.arrives(1, 0) == Texts{"copy of 1 differs from that of 1"});
}

TEST_CASE("epoch: a step's sums wait for its reduction, those of faster peers for the next") {
  EpochGroup group(2);
  for (Rank r = 0; r < 2; ++r) {
    group.frames(r).open_step(group.holders(), group.all());
    group.nodes[r]->compute(5);
  }
  CHECK(group.nodes[0]->reduce(5).empty());
  CHECK(group.all_arrive(0, 1).empty());
  CHECK(group.nodes[1]->reduce(5).empty());  // owns half: totals of the rest are still to come
  CHECK(group.all_arrive(1, 0) == Texts{"reduced 5"});
  CHECK(group.all_arrive(0, 1) == Texts{"reduced 5"});
  CHECK(group.nodes[1]->totals == std::vector<std::int32_t>(group.layout.elements(), 3));
  // Rank 0 is a step ahead; its sums come while rank 1 has the last reduction still.
  group.frames(0).set_version(6);
  group.frames(0).open_step(group.holders(), group.all());
  group.nodes[0]->compute(6);
  group.nodes[0]->reduce(6);
  CHECK(group.all_arrive(0, 1).empty());
  CHECK(group.frames(1).set_version(6).empty());
  group.frames(1).open_step(group.holders(), group.all());
  group.nodes[1]->compute(6);
  group.nodes[1]->reduce(6);
  CHECK(group.all_arrive(1, 0) == Texts{"reduced 6"});
  CHECK(group.all_arrive(0, 1) == Texts{"reduced 6"});
}

TEST_CASE("epoch: state arrives as it was sent, if the plan moves it") {
  EpochGroup group(2);
  auto plan = std::make_shared<Plan>(*group.plan);
  plan->moves = {{.segments = {1, 2}, .source = 1, .target = 0}};
  EpochNode target(plan, 0, false, 5, group.layout, group.net.end(0));
  const auto sent = [&](SegmentRange segments) {
    group.frames(1).send_move(0, 5, record_of(4), segments, share(Bytes{'a', 'b'}));
    const Frame frame = group.net.queue(1, 0).front();
    group.net.queue(1, 0).pop_front();
    return texts(target.frames.on_frame(1, frame));
  };
  CHECK(sent({1, 2}) == Texts{"move of 1 at 5: ab"});
  CHECK(sent({1, 1}) == Texts{"wrong 1: a move that the plan does not have"});
}

// Who is blamed is asked what it does next, or left out.
TEST_CASE("epoch: whoever sent what cannot be is named, and nothing is delivered after it") {
  const auto header = [](FrameKind kind, Version version) {
    FrameHeader made;
    made.kind = kind;
    made.version = version;
    return made;
  };
  const Payload nothing;
  struct Case {
    const char* name;
    FrameHeader header;
    Payload payload;
  };
  const Case cases[] = {
      {"an old version", header(FrameKind::kVote, 4), share(encode_vote(vote_of(4)))},
      {"two versions ahead", header(FrameKind::kVote, 7), share(encode_vote(vote_of(7)))},
      {"a torn vote", header(FrameKind::kVote, 5), share(Bytes{1, 2})},
      {"a vote of another step", header(FrameKind::kVote, 5), share(encode_vote(vote_of(6)))},
      {"a torn ledger", header(FrameKind::kLedger, 5), share(Bytes{1})},
      {"no such kind", header(static_cast<FrameKind>(77), 5), nothing},
      {"a move", header(FrameKind::kMove, 5), nothing},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.name));
    EpochGroup group(3);
    const Texts got = texts(group.frames(0).on_frame(2, make_frame(c.header, c.payload)));
    REQUIRE(got.size() == 1);
    CHECK(got[0].starts_with("wrong 2: "));
    group.frames(1).send_vote(vote_of(5));
    CHECK(group.all_arrive(1, 0).empty());
    CHECK(group.frames(0).set_version(6).empty());
  }
  // A frame that had to wait, and turns out wrong when the version is known.
  EpochGroup group(3, /*joiners=*/1);
  group.frames(1).send_vote(vote_of(5));
  group.net.queue(1, 2).front().header.version = 9;
  CHECK(group.all_arrive(1, 2).empty());
  group.frames(0).gather(5, group.holders(), record_of(4));
  const Texts got = group.arrives(0, 2);
  REQUIRE(got.size() == 1);
  CHECK(got[0].starts_with("wrong 1: "));
}

// Goal: whatever another process sends costs the epoch at most.
// Method: the frames of two real steps, each with some of its bytes changed, to ranks in every state.
TEST_CASE("epoch: damaged frames are taken, wait, or name their sender") {
  std::vector<std::pair<Rank, Frame>> sent;  // to rank 0
  {
    std::mt19937 random(1);
    EpochGroup group(3);
    Steps steps(group, /*steps=*/2);
    for (Rank r = 0; r < 3; ++r) steps.begin(r);
    REQUIRE(group.net.deliver_all(random, [&](Rank to, Rank from, const Frame& f) {
      if (to == 0) sent.emplace_back(from, f);
      steps.take(to, group.frames(to).on_frame(from, f));
      return Result<>(ok());
    }));
  }
  std::size_t taken = 0, refused = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    EpochGroup group(3, /*joiners=*/0, seed % 3 == 0 ? kNoVersion : Version{5});
    Epoch& frames = group.frames(0);
    if (seed % 2 == 0) {
      frames.open_step(group.holders(), group.all());
      group.nodes[0]->compute(5);
      group.nodes[0]->reduce(5);
    }
    for (int i = 0; i < 8; ++i) {
      auto [from, frame] = sent[random() % sent.size()];
      Bytes bytes = *frame.payload;
      for (std::uint32_t n = random() % 3; n > 0 && !bytes.empty(); --n)
        bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
      if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
      if (random() % 8 == 0) frame.header.first = SegmentId(random() % 9);
      if (random() % 8 == 0) frame.header.count = random() % 9;
      if (random() % 8 == 0) frame.header.kind = static_cast<FrameKind>(random() % 10);
      frame.payload = share(std::move(bytes));
      for (const auto& event : frames.on_frame(from, frame)) {
        const auto* wrong = std::get_if<Wrong>(&event);
        ++(wrong ? refused : taken);
        if (wrong) CHECK(wrong->peer == from);
      }
    }
    if (seed % 3 == 0) frames.set_version(5);
  }
  CHECK(taken > 500);
  CHECK(refused > 1000);
}

TEST_CASE("epoch: what waits is bounded") {
  SessionLimits limits;
  limits.frames_max = 3;
  EpochGroup group(2, /*joiners=*/0, kNoVersion, limits);
  for (int i = 0; i < 4; ++i) group.frames(1).send_vote(vote_of(5));
  const Texts held = group.all_arrive(1, 0);
  REQUIRE(held.size() == 1);
  CHECK(held[0].starts_with("wrong 1: too many frames wait, 4 of "));
  // Sums of a step whose reduction does not begin.
  EpochGroup entered(2, /*joiners=*/0, 5, limits);
  FrameHeader sums;
  sums.kind = FrameKind::kContribution;
  sums.version = 5;
  for (int i = 0; i < 3; ++i) CHECK(entered.frames(0).on_frame(1, make_frame(sums, {})).empty());
  CHECK(texts(entered.frames(0).on_frame(1, make_frame(sums, {}))).size() == 1);
}

}  // namespace starling::collectives
