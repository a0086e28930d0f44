#include "tests/collectives/memory_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace starling::collectives {

// Group is what a transport's members share. Each deferred call owns the group.
struct MemoryTransports::Group : std::enable_shared_from_this<Group> {
  enum class Stage : std::uint8_t {
    kAway,
    kJoined,
    kReady,
    kAdrift,  // a round with a dead member looked good here: its later transfers meet nothing
    kFailed,
    kGone,
  };

  struct Member {
    Stage stage = Stage::kAway;
    TransportOptions options;
    TransportEvents events;
    std::shared_ptr<std::byte> staging;
    std::uint64_t rounds = 0;  // begun
    std::size_t missing = 0;   // transfers of the one under way that have not met their other end
    bool under_way = false;
    std::vector<Transfer> receives;  // of it

    bool meets() const { return stage == Stage::kJoined || stage == Stage::kReady; }
    bool over() const { return stage == Stage::kFailed || stage == Stage::kGone; }
  };

  struct Lane {  // from one rank to another
    std::deque<Transfer> sends, receives;
  };

  explicit Group(std::shared_ptr<const MemoryTransportCalls> c) : calls(std::move(c)) {}

  void join(TransportOptions options, TransportEvents events);
  void exchange(Rank self, std::vector<Transfer> sends, std::vector<Transfer> receives);
  void meet(Rank from, Rank to);
  void one_less(Rank rank);
  void end_round(Rank rank, bool peer_gone);
  void fail(Rank rank, const std::string& why);
  void leave(Rank rank, Stage how);
  void later(std::uint32_t ms, Rank rank, void (Group::*what)(Rank));
  void say_ready(Rank rank);
  void all_met(Rank rank) { end_round(rank, /*peer_gone=*/false); }
  void lost_peer(Rank rank) { end_round(rank, /*peer_gone=*/true); }
  Member& at(Rank rank) { return members.at(rank.value()); }

  const std::shared_ptr<const MemoryTransportCalls> calls;
  std::vector<Member> members;
  std::map<std::pair<Rank, Rank>, Lane> lanes;
};

void MemoryTransports::Group::later(std::uint32_t ms, Rank rank, void (Group::*what)(Rank)) {
  calls->later(ms, [self = shared_from_this(), rank, what] { (self.get()->*what)(rank); });
}

void MemoryTransports::Group::join(TransportOptions options, TransportEvents events) {
  if (members.empty()) members.resize(options.world);
  STARLING_CHECK(members.size() == options.world);
  Member& member = at(options.self);
  STARLING_CHECK(member.stage == Stage::kAway);
  const Rank self = options.self;
  member.stage = Stage::kJoined;
  member.staging = options.allocate(options.staging_bytes);
  member.events = std::move(events);
  member.options = std::move(options);
  calls->later(member.options.connect_ms, [group = shared_from_this(), self] {
    if (group->at(self).stage == Stage::kJoined)
      group->fail(self, "the transport was not ready in time");
  });
  const auto joined = [](const Member& m) { return m.stage == Stage::kJoined; };
  if (!std::ranges::all_of(members, joined)) return;
  for (Rank r = 0; r < members.size(); ++r) later(0, r, &Group::say_ready);
}

void MemoryTransports::Group::say_ready(Rank rank) {
  if (at(rank).stage != Stage::kJoined) return;
  at(rank).stage = Stage::kReady;
  at(rank).events.on_ready();
}

void MemoryTransports::Group::exchange(Rank self, std::vector<Transfer> sends,
                                       std::vector<Transfer> receives) {
  Member& member = at(self);
  if (member.over()) return;
  STARLING_CHECK(member.stage != Stage::kAway && member.stage != Stage::kJoined);
  STARLING_CHECK(!member.under_way);
  member.under_way = true;
  member.missing = sends.size() + receives.size();
  const std::uint64_t round = ++member.rounds;
  for (const Transfer& t : sends) lanes[{self, t.peer}].sends.push_back(t);
  for (const Transfer& t : receives) lanes[{t.peer, self}].receives.push_back(t);
  member.receives = std::move(receives);
  calls->later(member.options.round_ms, [group = shared_from_this(), self, round] {
    if (group->at(self).under_way && group->at(self).rounds == round)
      group->fail(self, "a round did not end in time");
  });
  if (member.missing == 0) return later(0, self, &Group::all_met);
  bool peer_gone = false;
  for (Rank peer = 0; peer < members.size(); ++peer) {
    if (peer == self) continue;
    const auto waits = [&](const Lane& lane) {
      return !lane.sends.empty() || !lane.receives.empty();
    };
    meet(self, peer);
    meet(peer, self);
    if (at(peer).meets() && member.meets()) continue;
    peer_gone |= waits(lanes[{self, peer}]) || waits(lanes[{peer, self}]);
  }
  if (peer_gone) later(0, self, &Group::lost_peer);
}

void MemoryTransports::Group::meet(Rank from, Rank to) {
  Lane& lane = lanes[{from, to}];
  while (!lane.sends.empty() && !lane.receives.empty()) {
    if (!at(from).meets() || !at(to).meets()) return;
    const Transfer send = lane.sends.front(), receive = lane.receives.front();
    lane.sends.pop_front();
    lane.receives.pop_front();
    if (send.bytes != receive.bytes) {
      fail(from, "a transfer is not as large as its other end");
      fail(to, "a transfer is not as large as its other end");
      return;
    }
    if (send.bytes > 0) std::memcpy(receive.at, send.at, send.bytes);
    one_less(from);
    one_less(to);
  }
}

void MemoryTransports::Group::one_less(Rank rank) {
  if (--at(rank).missing == 0) later(0, rank, &Group::all_met);
}

void MemoryTransports::Group::end_round(Rank rank, bool peer_gone) {
  Member& member = at(rank);
  if (member.over() || !member.under_way) return;
  TransportFault fault = calls->fault ? calls->fault(rank, peer_gone)
                         : peer_gone  ? TransportFault::kNever
                                      : TransportFault::kNone;
  if (peer_gone && fault == TransportFault::kNone) fault = TransportFault::kNever;
  if (fault == TransportFault::kNever) return;
  if (fault != TransportFault::kNone)
    for (const Transfer& t : member.receives) std::memset(t.at, 0x5a, t.bytes);
  if (fault == TransportFault::kFails) return fail(rank, "a round failed");
  member.under_way = false;
  if (peer_gone) leave(rank, Stage::kAdrift);
  member.events.on_round(ok());
}

void MemoryTransports::Group::fail(Rank rank, const std::string& why) {
  Member& member = at(rank);
  if (member.over()) return;
  leave(rank, Stage::kFailed);
  const TransportEvents events = member.events;  // the transport may be gone after the first call
  if (std::exchange(member.under_way, false)) events.on_round(Error(Code::kPeerLost, why));
  if (at(rank).stage == Stage::kFailed) events.on_failed(Error(Code::kPeerLost, why));
}

// A member leaves. Peers that wait for this rank keep waiting.
void MemoryTransports::Group::leave(Rank rank, Stage how) {
  if (at(rank).stage >= how) return;
  at(rank).stage = how;
  for (Rank peer = 0; peer < members.size(); ++peer) {
    if (peer == rank || !at(peer).under_way) continue;
    if (!lanes[{peer, rank}].sends.empty() || !lanes[{rank, peer}].receives.empty())
      later(0, peer, &Group::lost_peer);
  }
}

class MemoryTransports::Path final : public DeviceTransport {
 public:
  Path(std::shared_ptr<Group> group, Rank self) : group_(std::move(group)), self_(self) {}
  ~Path() override { doom(); }

  std::byte* staging() override {
    const Group::Member& member = group_->at(self_);
    return member.stage == Group::Stage::kJoined ? nullptr : member.staging.get();
  }
  void exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) override {
    group_->exchange(self_, std::move(sends), std::move(receives));
  }
  void doom() override { group_->leave(self_, Group::Stage::kGone); }

 private:
  const std::shared_ptr<Group> group_;
  const Rank self_;
};

MemoryTransports::MemoryTransports(MemoryTransportCalls calls)
    : calls_(std::make_shared<const MemoryTransportCalls>(std::move(calls))) {
  STARLING_CHECK(calls_->later != nullptr);
}

MemoryTransports::~MemoryTransports() = default;

Result<Bytes> MemoryTransports::make_id() {
  ByteWriter id;
  id.put(++ids_);
  return std::move(id).take();
}

std::unique_ptr<DeviceTransport> MemoryTransports::connect(TransportOptions options,
                                                           TransportEvents events) {
  const auto same = [&](const auto& known) { return known.first == options.id; };
  auto at = std::ranges::find_if(groups_, same);
  std::shared_ptr<Group> group = at == groups_.end() ? nullptr : at->second.lock();
  if (!group) {
    group = std::make_shared<Group>(calls_);
    std::erase_if(groups_,
                  [&](const auto& known) { return same(known) || known.second.expired(); });
    groups_.push_back({options.id, group});
  }
  const Rank self = options.self;
  group->join(std::move(options), std::move(events));
  return std::make_unique<Path>(std::move(group), self);
}

}  // namespace starling::collectives
