#pragma once
// Random messages of every kind, and equality of all fields, for tests and fuzzing of the codec.
//
// fields() lists the fields of a struct once; a field that is added to the struct and not here does
// not compile (structured bindings count), so no field can be forgotten in the codec unseen.

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/wire/group_state.h"
#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace starling::samples {

#define SAMPLE_FIELDS(Type, ...)   \
  template <class Self>            \
  auto fields_of(Self& s, Type*) { \
    auto& [__VA_ARGS__] = s;       \
    return std::tie(__VA_ARGS__);  \
  }
SAMPLE_FIELDS(EpochId, a, b)
SAMPLE_FIELDS(Incarnation, a, b)
SAMPLE_FIELDS(SegmentRange, a, b)
SAMPLE_FIELDS(LedgerRow, a, b, c, d, e, f, g, h)
SAMPLE_FIELDS(Difference, a, b, c, d, e, f, g)
SAMPLE_FIELDS(LossScale, a, b)
SAMPLE_FIELDS(StepRecord, a, b, c, d, e, f, g, h, i, j)
SAMPLE_FIELDS(Vote, a, b, c, d, e, f, g, h, i, j)
SAMPLE_FIELDS(Member, a, b, c, d, e, f, g, h)
SAMPLE_FIELDS(Move, a, b, c, d)
SAMPLE_FIELDS(RateChange, a, b)
SAMPLE_FIELDS(Plan, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
SAMPLE_FIELDS(Machine, a, b, c, d, e, f, g, h, i)
SAMPLE_FIELDS(Join, a, b, c, d, e, f, g, h, i, j, k, l)
SAMPLE_FIELDS(Report, a, b, c, d, e, f, g, h, i, j, k, l)
SAMPLE_FIELDS(Heartbeat, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
SAMPLE_FIELDS(Pause, a, b, c, d, e, f)
SAMPLE_FIELDS(Progress, a, b, c, d, e, f, g, h)
SAMPLE_FIELDS(Leave, a)
SAMPLE_FIELDS(Notice, a, b, c, d)
SAMPLE_FIELDS(Death, a, b, c, d)
SAMPLE_FIELDS(Finished, a, b, c, d, e)
SAMPLE_FIELDS(Welcome, a, b)
SAMPLE_FIELDS(Refused, a)
SAMPLE_FIELDS(Fenced, a)
SAMPLE_FIELDS(Freeze, a)
SAMPLE_FIELDS(Committed, a)
SAMPLE_FIELDS(Ended, a, b, c, d, e)
SAMPLE_FIELDS(CheckpointAsked, a)
SAMPLE_FIELDS(Noted, a)
SAMPLE_FIELDS(LeaderHint, a, b, c)
SAMPLE_FIELDS(Seat, a, b)
SAMPLE_FIELDS(Seats, a)
SAMPLE_FIELDS(ChangeAsked, a, b, c, d, e)
SAMPLE_FIELDS(ChangeAnswered, a, b)
SAMPLE_FIELDS(AdminAsked, a, b, c, d)
SAMPLE_FIELDS(AdminAnswered, a, b, c, d)
SAMPLE_FIELDS(Enrol, a)
SAMPLE_FIELDS(Enrolled, a, b, c)
SAMPLE_FIELDS(CoordinatorAt, a, b, c)
SAMPLE_FIELDS(RaftMembers, a, b, c, d)
SAMPLE_FIELDS(RaftEntry, a, b, c, d)
SAMPLE_FIELDS(RaftMessage, a, b, c, d, e, f, g, h, i, j, k)
SAMPLE_FIELDS(SegmentDigest, a, b)
SAMPLE_FIELDS(Shard, a, b, c)
SAMPLE_FIELDS(Checkpoint, a, b, c, d, e, f, g)
SAMPLE_FIELDS(ShardWritten, a, b, c, d)
SAMPLE_FIELDS(Unloadable, a, b)
SAMPLE_FIELDS(Published, a, b, c)
SAMPLE_FIELDS(Damaged, a, b)
SAMPLE_FIELDS(Restarted, a, b, c, d)
SAMPLE_FIELDS(JobStarted, a, b, c)
SAMPLE_FIELDS(Joined, a)
SAMPLE_FIELDS(LeaveAnnounced, a)
SAMPLE_FIELDS(Lost, a, b)
SAMPLE_FIELDS(JobEnded, a, b, c, d, e, f)
SAMPLE_FIELDS(Envelope, a, b, c, d)
SAMPLE_FIELDS(GroupState::Life, a, b, c, d, e)
SAMPLE_FIELDS(GroupState::EpochMembers, a, b)
SAMPLE_FIELDS(GroupState, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
#undef SAMPLE_FIELDS
template <class Self>
std::tuple<> fields_of(Self&, Released*) {
  return {};
}

template <class T>
auto fields(T& value) {
  return fields_of(value, static_cast<std::remove_const_t<T>*>(nullptr));
}

// ---- Equality: every field, counters of incarnations and bits of doubles included --------------

template <class T>
bool same(const T& a, const T& b);
template <class Tag, class Int>
bool same(const Id<Tag, Int>& a, const Id<Tag, Int>& b) {
  return a == b;
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}
inline bool same(const std::vector<bool>& a, const std::vector<bool>& b) {
  return a == b;
}
inline bool same(const std::string& a, const std::string& b) {
  return a == b;
}
template <class T, std::size_t n>
bool same(const std::array<T, n>& a, const std::array<T, n>& b) {
  return a == b;
}
template <class T>
bool same(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() == b.has_value() && (!a || same(*a, *b));
}
template <class... T>
bool same(const std::variant<T...>& a, const std::variant<T...>& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&b](const auto& x) { return same(x, std::get<std::decay_t<decltype(x)>>(b)); },
                    a);
}
template <class T>
bool same(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return a == b;
  } else {
    const auto x = fields(a);
    const auto y = fields(b);
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return (same(std::get<i>(x), std::get<i>(y)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(x)>>());
  }
}

// ---- Random values -----------------------------------------------------------------------------

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : rng_(seed) {}
  std::uint64_t bits() { return rng_(); }
  std::uint64_t below(std::uint64_t n) { return rng_() % n; }

  // A message or entry of the given kind (index in the variant).
  template <class Variant>
  Variant make(std::size_t kind) {
    return make_kind<Variant>(kind, std::make_index_sequence<std::variant_size_v<Variant>>());
  }
  Envelope envelope(std::size_t kind) {
    Envelope envelope;
    fill(envelope.job);
    fill(envelope.from);
    fill(envelope.to);
    envelope.from.nonce = Nonce(envelope.from.nonce | 1);
    envelope.body = make<Message>(kind);
    return envelope;
  }
  GroupState group() {
    GroupState state;
    fill(state);
    state.next_counter |= 1;
    return state;
  }
  Progress progress() {
    Progress progress;
    fill(progress);
    return progress;
  }
  Vote vote() {
    Vote vote;
    fill(vote);
    vote.ready_attempt = static_cast<std::uint32_t>(below(limits::kAttempts + 1));
    return vote;
  }
  Plan plan(std::size_t members, std::size_t segments) {
    Plan p;
    fill(p.id);
    fill(p.predecessor);
    fill(p.kind);
    p.members.resize(members);
    for (auto& member : p.members) fill(member);
    fill(p.key);
    p.holders.resize(members == 0 ? 0 : segments);
    for (auto& holders : p.holders) {
      holders.resize(1 + below(std::min<std::size_t>(members, 3)));
      for (auto& rank : holders) rank = static_cast<Rank>(below(members));
    }
    p.moves.resize(p.holders.empty() ? 0 : below(4));
    for (auto& move : p.moves) {
      move.segments.first = static_cast<SegmentId>(below(p.holders.size()));
      move.segments.count =
          static_cast<std::uint32_t>(1 + below(p.holders.size() - move.segments.first));
      move.source = static_cast<Rank>(below(members));
      move.target = static_cast<Rank>(below(members));
      move.step_offset = static_cast<std::uint32_t>(below(100));
    }
    fill(p.base);
    fill(p.begin);
    p.shares.resize(members == 0 ? 0 : below(20));
    for (auto& rank : p.shares) rank = static_cast<Rank>(below(members));
    fill(p.cause);
    fill(p.entered);
    fill(p.doubted_from);
    fill(p.rates);
    return p;
  }

 private:
  template <class Variant, std::size_t... i>
  Variant make_kind(std::size_t kind, std::index_sequence<i...>) {
    Variant value;
    ((i == kind ? fill(value.template emplace<i>()) : void()), ...);
    return value;
  }
  void fill(Plan& p) {
    const std::size_t segments = 1 + below(9);  // drawn first, whatever the compiler
    p = plan(below(5), segments);
  }
  void fill(Join& j) {
    std::apply([this](auto&... field) { (fill(field), ...); }, fields(j));
    j.who.nonce = Nonce(j.who.nonce | 1);
  }
  void fill(Report& r) {
    std::apply([this](auto&... field) { (fill(field), ...); }, fields(r));
    for (auto* list : {&r.share, &r.done})
      for (auto& m : *list) m = MicroBatch(m % (1u << 20));
  }
  void fill(Progress& p) {
    std::apply([this](auto&... field) { (fill(field), ...); }, fields(p));
    p.world %= 4097;
    p.peak_rate = double(below(3)) / 4;
    for (auto& row : p.ledger) {
      row.micro_batch = MicroBatch(row.micro_batch % (1u << 20));
      row.held_out.clear();  // between members alone
    }
  }
  void fill(SegmentDigest& d) {
    std::apply([this](auto&... field) { (fill(field), ...); }, fields(d));
    d.segment = SegmentId(d.segment % 65536);
  }
  void fill(LossScale& scale) {
    scale.log2 = static_cast<std::uint8_t>(below(LossScaleRule::kMax + 1));
    fill(scale.steps);
  }
  void fill(Pause& pause) {
    std::apply([this](auto&... ms) { ((ms = double(below(1 << 30)) / 1024), ...); }, fields(pause));
  }
  void fill(Heartbeat& beat) {
    std::apply([this](auto&... field) { (fill(field), ...); }, fields(beat));
    beat.missed.resize(std::min(beat.missed.size(), limits::kMissed));
  }
  void fill(Seat& seat) {
    std::apply([this](auto&... field) { (fill(field), ...); }, fields(seat));
    seat.place %= limits::kSeats;
  }
  void fill(LinkFault& fault) { fault = static_cast<LinkFault>(below(3)); }
  void fill(WorkPhase& phase) { phase = static_cast<WorkPhase>(below(8)); }
  template <class T>
  void fill(std::optional<T>& value) {
    if (below(2) != 0) fill(value.emplace());
  }
  template <class Tag, class Int>
  void fill(Id<Tag, Int>& id) {
    Int number = 0;
    fill(number);
    id = Id<Tag, Int>(number);
  }
  void fill(PlanKind& kind) { kind = static_cast<PlanKind>(1 + below(3)); }
  void fill(WorkerRole& role) { role = static_cast<WorkerRole>(1 + below(3)); }
  void fill(BeginAt& begin) { begin = static_cast<BeginAt>(1 + below(3)); }
  void fill(RaftKind& kind) { kind = static_cast<RaftKind>(1 + below(12)); }
  void fill(ChangeState& state) { state = static_cast<ChangeState>(1 + below(4)); }
  void fill(AdminAction& action) { action = static_cast<AdminAction>(1 + below(5)); }
  void fill(AdminAsked& asked) {
    std::apply([this](auto&... field) { (fill(field), ...); }, fields(asked));
    asked.peak_rate = asked.action == AdminAction::kRate ? double(1 + below(4000)) / 4 : 0;
  }
  void fill(std::vector<RateChange>& rates) {
    rates.resize(below(3));
    Version from = 0;
    for (RateChange& rate : rates) rate = {from += below(50), double(1 + below(4000)) / 4};
  }
  void fill(AdminState& state) { state = static_cast<AdminState>(1 + below(3)); }
  void fill(Enrolled& enrolled) {
    fill(enrolled.name);
    if (enrolled.name.empty()) enrolled.refusal = "no";
    fill(enrolled.again);
  }
  void fill(ChangeAsked& asked) {
    if (below(2) != 0) asked.add = static_cast<std::uint32_t>(below(limits::kSeats));
    if (below(2) != 0) asked.remove = static_cast<std::uint32_t>(below(limits::kSeats));
    fill(asked.address);
    fill(asked.life);
    fill(asked.job_hash);
  }
  void fill(CoordinatorAt& seat) {
    seat.place = static_cast<std::uint32_t>(below(limits::kSeats));
    fill(seat.address);
    fill(seat.life);
  }
  void fill(RaftMembers& members) {
    members = {};
    for (auto n = 1 + below(limits::kVoters); n > 0; --n)
      members.voters.push_back(members.next += static_cast<std::uint32_t>(1 + below(3)));
    members.learner = ++members.next;
    ++members.next;
    if (below(2) != 0) members.leaving = members.voters.back();
  }
  void fill(std::string& s) {
    s.resize(below(12));
    for (auto& c : s) c = static_cast<char>(below(256));
  }
  void fill(std::vector<bool>& v) {
    v.resize(below(40));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = below(2) != 0;
  }
  template <class T>
  void fill(std::vector<T>& v) {
    v.resize(below(6));
    for (auto& x : v) fill(x);
  }
  template <class T, std::size_t n>
  void fill(std::array<T, n>& a) {
    for (auto& x : a) fill(x);
  }
  template <class T>
  void fill(T& value) {
    if constexpr (std::is_same_v<T, double>)
      value = std::bit_cast<double>(rng_());  // NaN and infinity among them
    else if constexpr (std::is_same_v<T, bool>)
      value = below(2) != 0;
    else if constexpr (std::is_arithmetic_v<T>)
      value = static_cast<T>(rng_());
    else
      std::apply([this](auto&... field) { (fill(field), ...); }, fields(value));
  }

  std::mt19937_64 rng_;
};

}  // namespace starling::samples
