#include "elastic/membership/placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/base/check.h"

namespace starling::elastic {
namespace {

// Those that hold, without those that drain unless all of them do.
std::vector<Rank> staying(const std::vector<Member>& members) {
  std::vector<Rank> ranks;
  for (const bool draining : {false, true}) {
    if (!ranks.empty()) break;
    for (Rank r = 0; r < members.size(); ++r)
      if (holds(members[r].role) && members[r].draining == draining) ranks.push_back(r);
  }
  STARLING_CHECK(!ranks.empty());
  return ranks;
}

bool contains(const std::vector<Rank>& ranks, Rank r) {
  return std::find(ranks.begin(), ranks.end(), r) != ranks.end();
}

// Owners chooses owners where the target's has no copy yet. Segments with equal holders go in one
// frame, so neighbours stay together: the owner of the segment before owns this one too, as long as
// that is no more than an even part of all up to its bucket's end; else the rank that owns least.
class Owners {
 public:
  explicit Owners(const PlacementInput& in) : in_(in), owned_(in.members.size()) {
    for (Rank r = 0; r < in.members.size(); ++r)
      if (!in.members[r].draining && std::ranges::count(in.copies[r], true) > 0) ++sharing_;
  }

  std::vector<Rank>::iterator choose(SegmentId s, std::vector<Rank>& holders) const {
    const std::uint32_t bucket = in_.bucket_segments ? in_.bucket_segments : in_.segments;
    const std::uint32_t end = std::min(in_.segments, (s / bucket + 1) * bucket);
    const auto last = last_ ? std::ranges::find(holders, *last_) : holders.end();
    const bool stays = last != holders.end() && !in_.members[*last].draining;
    if (stays && std::uint64_t{owned_[*last]} * sharing_ < end) return last;
    return std::ranges::min_element(
        holders, {}, [&](Rank r) { return std::pair(in_.members[r].draining, owned_[r]); });
  }
  void add(Rank owner) {
    last_ = owner;
    ++owned_[owner];
  }

 private:
  const PlacementInput& in_;
  std::uint32_t sharing_ = 0;  // members that stay and have a copy of something
  std::vector<std::uint32_t> owned_;
  std::optional<Rank> last_;  // owner of the segment before; none: there is none
};

// A source's moves are spread over steps so that none sends more than the budget in one step.
class MoveSchedule {
 public:
  explicit MoveSchedule(std::uint32_t budget) : budget_(std::max(1u, budget)) {}

  void add(SegmentId segment, Rank source, Rank target) {
    const std::uint32_t step = sent_[source]++ / budget_;
    const auto [it, fresh] = last_.try_emplace({source, target, step}, moves_.size());
    if (!fresh) {
      Move& last = moves_[it->second];
      if (last.segments.past() == segment) {
        ++last.segments.count;
        return;
      }
      it->second = moves_.size();
    }
    moves_.push_back(Move{{segment, 1}, source, target, step});
  }
  std::vector<Move> take() { return std::move(moves_); }

 private:
  std::uint32_t budget_;
  std::map<Rank, std::uint32_t> sent_;
  std::map<std::tuple<Rank, Rank, std::uint32_t>, std::size_t> last_;  // its newest range
  std::vector<Move> moves_;
};

}  // namespace

std::optional<WorkerRole> role_lacking(const std::vector<Member>& members) {
  if (std::ranges::none_of(members, computes, &Member::role)) return WorkerRole::kCompute;
  if (std::ranges::none_of(members, holds, &Member::role)) return WorkerRole::kHold;
  return std::nullopt;
}

std::uint32_t wanted_replicas(const std::vector<Member>& members, std::uint32_t replicas) {
  return std::min<std::uint32_t>(replicas, static_cast<std::uint32_t>(staying(members).size()) - 1);
}

constexpr std::uint32_t kGolden = 0x9E3779B9;  // 2^32 divided by the golden ratio
constexpr std::uint64_t kSegment = (std::uint64_t{1} << 32) - 1;

std::vector<std::vector<Rank>> target_holders(const PlacementInput& in) {
  const auto ranks = staying(in.members);
  const std::uint32_t n = static_cast<std::uint32_t>(ranks.size());
  const std::uint32_t wanted = wanted_replicas(in.members, in.replicas);
  const std::uint32_t bucket = in.bucket_segments ? in.bucket_segments : in.segments;

  // The replicas of each place in the ring: the next in other failure domains, then the next ones.
  std::vector<std::vector<Rank>> holders_of(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    auto& holders = holders_of[i];
    holders.push_back(ranks[i]);
    for (const bool other_domain : {true, false}) {
      for (std::uint32_t k = 1; k < n && holders.size() <= wanted; ++k) {
        const Rank candidate = ranks[(i + k) % n];
        const auto& domain = in.members[candidate].failure_domain;
        const bool apart =
            domain.empty() || std::none_of(holders.begin(), holders.end(), [&](Rank h) {
              return in.members[h].failure_domain == domain;
            });
        if ((apart || !other_domain) && !contains(holders, candidate)) holders.push_back(candidate);
      }
    }
  }
  std::vector<std::vector<Rank>> target(in.segments);
  for (SegmentId s = 0; s < in.segments; ++s) {
    const std::uint32_t first = s / bucket * bucket;
    const std::uint64_t size = std::min(bucket, in.segments - first);
    // A bucket's segments lie evenly on the ring, and what lies before the first differs from bucket to
    // bucket, evenly as well (multiples of the golden ratio): so the surplus of one, or all of a bucket that
    // has fewer segments than there are ranks, is not always the same rank's. In units of 2^-32 segments.
    const std::uint64_t before = s / bucket * std::uint64_t{kGolden} & kSegment;
    target[s] = holders_of[((std::uint64_t{s - first} << 32) + before) * n / size >> 32];
  }
  return target;
}

Placement place(const PlacementInput& in) {
  Placement placement;
  if (role_lacking(in.members) == WorkerRole::kHold) {
    placement.complete = false;
    return placement;
  }
  const auto target = target_holders(in);
  const std::uint32_t wanted = wanted_replicas(in.members, in.replicas) + 1;
  const std::uint32_t world = static_cast<std::uint32_t>(in.members.size());
  Owners owners(in);

  for (SegmentId s = 0; s < in.segments; ++s) {
    std::vector<Rank> holders;
    for (Rank r : target[s])
      if (in.copies[r][s]) holders.push_back(r);
    // Copies elsewhere stay until the target has its own; members that stay come before those that
    // leave.
    for (const bool draining : {false, true})
      for (Rank r = 0; r < world && holders.size() < wanted; ++r)
        if (in.copies[r][s] && in.members[r].draining == draining && !contains(holders, r))
          holders.push_back(r);
    if (holders.empty()) {
      placement.complete = false;
      placement.holders.emplace_back();
      continue;
    }
    // R13: the owner has a current copy.
    if (holders.front() != target[s].front())
      std::iter_swap(holders.begin(), owners.choose(s, holders));
    owners.add(holders.front());
    placement.holders.push_back(std::move(holders));
  }
  if (!placement.complete) return placement;

  // Each segment with fewest copies gets one more before any gets a second one: a leaver's only
  // copies go first.
  MoveSchedule schedule(in.budget);
  std::vector<std::uint32_t> safe(in.segments);
  std::vector<std::vector<Rank>> to_come(in.segments);
  for (SegmentId s = 0; s < in.segments; ++s) {
    const auto& holders = placement.holders[s];
    safe[s] = static_cast<std::uint32_t>(std::count_if(
        holders.begin(), holders.end(), [&](Rank r) { return !in.members[r].draining; }));
    for (auto r = target[s].rbegin(); r != target[s].rend(); ++r)
      if (!contains(holders, *r)) to_come[s].push_back(*r);
  }
  for (std::uint32_t copies = 0; copies < wanted; ++copies)
    for (SegmentId s = 0; s < in.segments; ++s) {
      if (safe[s] > copies || to_come[s].empty()) continue;
      schedule.add(s, placement.holders[s].front(), to_come[s].back());
      to_come[s].pop_back();
      ++safe[s];
    }
  for (SegmentId s = 0; s < in.segments; ++s)  // balance
    for (; !to_come[s].empty(); to_come[s].pop_back())
      schedule.add(s, placement.holders[s].front(), to_come[s].back());
  placement.moves = schedule.take();
  return placement;
}

}  // namespace starling::elastic
