#include "elastic/membership/resume.h"

#include <algorithm>
#include <optional>

#include "elastic/protocol/shares.h"

namespace starling::elastic {

Result<Resume> resume_rule(const std::vector<Reporter>& reporters, const Group& group,
                           const Bugs& bugs) {
  Version highest = group.last_base();
  EpochId entered;
  bool anybody = false;
  for (const Reporter& r : reporters) {
    // A member of a fresh plan counts without state too: no member passed a vote without it. A
    // reporter that was no member of an epoch never ran it.
    if (group.was_member(r.report.entered, r.who)) entered = std::max(entered, r.report.entered);
    if (r.report.version == kNoVersion) continue;
    anybody = true;
    highest = std::max(highest, r.report.version);
  }
  Resume resume;
  if (!anybody) {
    // A member of the last fresh plan never had its state: no member passed a vote without it.
    const bool nothing_done =
        highest == group.start() && group.can_start() &&
        std::any_of(reporters.begin(), reporters.end(),
                    [&](const Reporter& r) { return group.was_member(group.last_fresh(), r.who); });
    if (group.plan() && !group.restart() && !nothing_done)
      return Error(Code::kStateLost, "no worker with a state is left");
    resume.fresh = true;
    resume.base = group.start();
    // From a checkpoint each worker loads what it holds, and gets the rest from the owners.
    resume.begin = resume.base == 0 ? BeginAt::kCompute : BeginAt::kGather;
    return resume;
  }

  bool any_member = false, all_pending = true, any_pending = false;
  for (const Reporter& r : reporters) {
    if (!group.was_member(entered, r.who)) continue;
    const bool pending =
        r.report.version == highest && r.report.entered == entered && r.report.pending;
    any_member = true;
    all_pending = all_pending && pending;
    any_pending = any_pending || pending;
  }
  if (bugs.r12_never_finish) all_pending = false;
  if (bugs.r12_always_finish) all_pending = any_pending;
  // A lost member may have passed the vote, and all members that voted have the totals.
  resume.base = any_member && all_pending ? highest + 1 : highest;

  bool behind = false, complete = true, joiners = false;
  for (const Reporter& r : reporters) {
    const Version version = r.report.version;
    if (version == kNoVersion) {
      joiners = true;
    } else if (version == resume.base) {
      complete = complete && r.report.parameters_complete;
    } else if (version + 1 == resume.base && r.report.pending) {
      behind = true;
    } else if (group.was_member(entered, r.who)) {
      return Error(Code::kInternal, "a worker reports version " + std::to_string(version) +
                                        (r.report.pending ? " (pending)" : "") +
                                        ", the next epoch's base is " +
                                        std::to_string(resume.base));
    }
  }
  resume.fresh = resume.base == 0;
  if (resume.fresh)
    resume.begin = BeginAt::kCompute;
  else if (behind)
    resume.begin = BeginAt::kVote;
  else
    resume.begin = complete && !joiners ? BeginAt::kCompute : BeginAt::kGather;
  return resume;
}

bool goes_on(const Report& report, Version base) {
  return report.version == kNoVersion || report.version == base ||
         (report.version + 1 == base && report.pending);
}

bool current_copy(const Report& report, SegmentId segment, Version base) {
  if (report.version == kNoVersion || segment >= report.copies.size() || !report.copies[segment])
    return false;
  return report.version == base || (report.version + 1 == base && report.pending);
}

bool copied(const std::vector<Reporter>& reporters, SegmentId segment, Version base) {
  return std::any_of(reporters.begin(), reporters.end(),
                     [&](const Reporter& r) { return current_copy(r.report, segment, base); });
}

bool all_copied(const std::vector<Reporter>& reporters, std::uint32_t segments, Version base) {
  for (SegmentId s = 0; s < segments; ++s)
    if (!copied(reporters, s, base)) return false;
  return true;
}

Result<std::vector<Rank>> deal_shares(const std::vector<Reporter>& reporters,
                                      const std::vector<Member>& members, Version base,
                                      std::uint32_t micro_batches, const Bugs& bugs) {
  std::vector<std::optional<Rank>> kept_by(micro_batches);
  std::vector<Capacity> capacities;
  std::uint32_t kept = 0;
  bool dealt_twice = false;
  for (Rank r = 0; r < reporters.size(); ++r) {
    const Report& report = reporters[r].report;
    Capacity& c = capacities.emplace_back();
    c.micro_batch_ns = report.micro_batch_ns;
    c.computes = computes(members[r].role);
    if (report.version != base) continue;
    for (MicroBatch m : report.share) {
      if (m >= micro_batches || kept_by[m])
        return Error(Code::kInternal,
                     "micro-batch " + std::to_string(m) + " is in the shares of two workers");
      if (bugs.share_overlap && !dealt_twice && reporters.size() > 1) {
        dealt_twice = true;
        continue;
      }
      kept_by[m] = r;
      ++c.left;
      ++kept;
    }
    c.left -= static_cast<std::uint32_t>(std::min<std::size_t>(report.done.size(), c.left));
  }
  const auto dealt = deal(capacities, micro_batches - kept);
  auto next = dealt.begin();
  std::vector<Rank> shares;
  for (const auto& keeper : kept_by) shares.push_back(keeper ? *keeper : *next++);
  return shares;
}

}  // namespace starling::elastic
