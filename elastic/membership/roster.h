#pragma once
// Roster knows the workers that a leader deals with: what each life has said in this term, which
// lives are members of an epoch that may run and which wait to join one, which are silent, and
// whose bits are the group's. It keeps nothing of lives that are over.
//
// Only the roster writes a contact; all other classes read, and tell it what was heard.
//
// Threads: none; a value that belongs to its leader. Borrows the leader's config and the group. All
// times are milliseconds of the leader's clock.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/wire/messages.h"
#include "elastic/membership/group.h"
#include "elastic/membership/leader_config.h"
#include "elastic/membership/patience.h"

namespace starling::elastic {

// A Contact is what is known of a life, from its messages in this term.
struct Contact {
  Silence silence;    // counted afresh by a new leader
  bool dead = false;  // its guard said so
  WorkPhase died_at = WorkPhase::kNone;
  std::string died_of;
  std::uint8_t died_with = 0;  // the exit code with which it ended itself; 0: it did not
  EpochId entered;             // never falls
  EpochId ready_for;
  Version version = kNoVersion;  // never falls
  std::optional<Report> report;  // its promise never falls
  std::optional<Finished> finished;
  std::uint64_t leave_by_ms = 0;  // end of its notice; 0 = none announced
  std::uint64_t leaving_ms = 0;   // since when that is in the log; 0: before this term
  std::uint64_t welcomed_ms = 0;
  Version first = 0;  // it has computed in no step before this one; 0: it joined before this term
  std::uint64_t micro_batch_ns = 0;  // 0: not known
  Headway headway;
  std::vector<Rank> missed;  // of `entered`: ranks that it waits for
  // The last plan that was sent to it, when, and how long until that plan is sent again.
  EpochId plan_sent;
  std::uint64_t plan_sent_ms = 0, plan_wait_ms = 0;
  Digest data{};  // of all its data; zeros: not known yet
  bool other_data_told = false;
  bool told_to_go = false;  // refused after it had joined
};

class Roster {
 public:
  Roster(const LeaderConfig& config, const Group& group, std::uint64_t now_ms);
  Roster(LeaderConfig&&, const Group&, std::uint64_t) = delete;  // it is borrowed

  // An event begins.
  void look(std::uint64_t now_ms);
  std::uint64_t now_ms() const { return now_ms_; }

  // ---- What was heard ----
  // Returns a life's contact; one not heard in this term counts as heard at this first meeting.
  const Contact& meet(const Incarnation& who);
  void heard(const Incarnation& who);
  // Notes the epoch that a life has entered. Returns true if it is later than was known.
  bool entered(const Incarnation& who, const EpochId& epoch);
  // Notes a life's version. Returns true for a member of the last plan that is seen in its epoch.
  bool reached(const Incarnation& who, Version version);
  void reported(const Incarnation& who, const Report& report);
  // Notes what its threads have left to do and what it is ready for, no version. As entered().
  bool works(const Incarnation& who, const Heartbeat& beat);
  void finished(const Incarnation& who, const Finished& finished);
  void noticed(const Incarnation& who, std::uint64_t notice_ms);
  void died(const Death& death);

  // ---- What Raft committed ----
  void joined(const Incarnation& who);
  void restarted(Version version);  // steps are done again from this one on
  void leaves(const Incarnation& who);
  void lost(const Incarnation& who);
  void follow(const Plan& plan);  // the group's last

  // ---- What was said to it: true if it is to be said now ----
  // A plan is large. It is sent again only to a life that was heard since and has not come to it,
  // each time after twice as long: what is sent to a silent life waits in its connection, or is
  // lost with it.
  bool plan_is_due(const Incarnation& who, const EpochId& plan);
  bool warning_is_due(const Incarnation& who, std::uint64_t since_ms);  // of that standstill
  bool other_data_is_due(const Incarnation& who);                       // once
  void told_to_go(const Incarnation& who) { contact(who).told_to_go = true; }

  // ---- Lives ----
  const Contact* find(const Incarnation& who) const;  // null: not met in this term
  const Contact& at(const Incarnation& who) const;    // one that was met
  // Of all data of a life, as it said when it joined or since; zeros: not read to the end yet.
  Digest data_of(const Incarnation& who) const;
  const std::map<Nonce, Contact>& contacts() const { return contacts_; }  // by nonce
  Member member_of(const Incarnation& who) const;                         // as a plan names it
  bool certainly_dead(const Incarnation& who) const;
  bool waits(const Incarnation& who) const { return waiting_.count(who.nonce) != 0; }
  bool silent(const Incarnation& who);
  std::uint64_t tolerance();  // computed once for an event

  // ---- Epochs ----
  // The plans that may still run: the last one, and the one before it while the last is a prepared
  // one that not all members are known to have entered (R11).
  std::vector<const Plan*> running_plans() const;
  // The member whose end the others notice first where it was told to go; null: no member was.
  const Member* told_to_go() const;
  // A member of a running plan that is known to be dead; null: none is.
  const Member* dead_member() const;
  std::vector<const Member*> running_members() const;  // of these, each once, the last plan's first
  bool all_entered() const { return lacking_ == 0; }
  bool member_now(const Incarnation& who) const;
  std::vector<Incarnation> waiting_joiners() const;
  std::vector<Incarnation> candidates() const;  // running members, then waiting joiners

  // ---- What they have in common ----
  // The join with the group's fingerprint: of a member of the last plan, all of which have the
  // same. Before a plan the largest part of lives that wait and are heard decides, of equal ones
  // the first that came. Lives that left, died or fell silent decide nothing. Null: none.
  const Join* standard() const;
  // The digest of the group's data: that of more than half of the members; when all are known, of
  // the most, and of as many that of the lowest rank.
  const std::optional<Digest>& data_of_group();

  void check_invariants() const;

 private:
  Contact& contact(const Incarnation& who);
  Digest data_at_join(const Incarnation& who) const;
  void check_members(const Plan& plan) const;
  std::optional<Digest> count_data() const;

  const LeaderConfig& config_;
  const Group& group_;
  const std::uint64_t began_ms_;
  std::uint64_t now_ms_;

  std::map<Nonce, Contact> contacts_;  // by nonce
  std::set<Nonce> waiting_;            // lives that may be joiners of the next plan
  // Ranks of the members of the last plan and of the one before it, by nonce.
  std::map<Nonce, Rank> ranks_, ranks_before_;
  std::size_t lacking_ = 0;  // members of the last plan that were not heard in it yet

  std::optional<std::uint64_t> tolerance_;  // at the time of the event being handled
  std::optional<Digest> group_data_;        // as long as nothing new is known of it
  bool group_data_known_ = false;
};

}  // namespace starling::elastic
