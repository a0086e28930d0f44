#pragma once
// Leader decides which workers to admit, when an epoch is over, which workers to wait for, and what
// the next epoch is (docs/design.md, section 6). Pure; lives for one term of one coordinator, and
// begins when an entry of that term is applied (R10).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/observe/event.h"
#include "core/wire/messages.h"
#include "elastic/membership/drafts.h"
#include "elastic/membership/epoch_progress.h"
#include "elastic/membership/forming.h"
#include "elastic/membership/group.h"
#include "elastic/membership/key_claims.h"
#include "elastic/membership/leader_config.h"
#include "elastic/membership/proposals.h"
#include "elastic/membership/roster.h"
#include "elastic/membership/suspicions.h"
#include "elastic/protocol/bugs.h"

namespace starling::elastic {

namespace leader_event {
struct Tick {
  std::uint64_t now_ms = 0;
};
struct Applied {  // an entry was committed and applied to the group
  Entry entry;
  bool valid = true;  // Group::apply's answer
};
struct Said {
  Incarnation from;
  std::string name;
  Message body;
};
struct AskCheckpoint {};  // of the next version that can be had: the run is about to be ended
struct EndRun {           // now, in order: a death after this is none
  std::uint8_t signal = 0;
  std::string reason;
};
struct Revoked {  // workers with these keys are let in no longer, and cannot send anything
  std::vector<std::string> names;
};
struct AdminArrived {  // from a person with this key
  Incarnation from;
  std::string name;
  AdminAsked asked;
};
struct Stored {  // answer to Store
  Version version = 0;
  std::string error;  // empty: the manifest is there
};
}  // namespace leader_event
using LeaderEvent =
    std::variant<leader_event::Tick, leader_event::Applied, leader_event::Said,
                 leader_event::Stored, leader_event::AskCheckpoint, leader_event::EndRun,
                 leader_event::Revoked, leader_event::AdminArrived>;

namespace leader_command {
struct Propose {
  Entry entry;
};
struct Send {
  Incarnation to;
  Message body;
};
using Store = draft_command::Store;  // -> Stored
using Tidy = draft_command::Tidy;
}  // namespace leader_command
using LeaderCommand = std::variant<leader_command::Propose, leader_command::Send,
                                   leader_command::Store, leader_command::Tidy, Event>;
using LeaderCommands = std::vector<LeaderCommand>;

// Threads: none; a value that belongs to the caller of on(). Borrows the group.
class Leader {
 public:
  // `told`: no step from this version on was told to this coordinator so far.
  Leader(LeaderConfig config, const Group& group, std::uint64_t term, std::uint64_t now_ms,
         Version told = 0);
  Leader(const Leader&) = delete;  // its parts borrow each other

  // The events of what stands in the log, as the last leader may not have told them. Observers drop
  // events that they know.
  LeaderCommands announce();
  LeaderCommands on(const LeaderEvent& event);

 private:
  void on_event(const leader_event::Tick& e);
  void on_event(const leader_event::Applied& e);
  void on_event(const leader_event::Said& e);
  void on_event(const leader_event::Stored& e);
  void on_event(const leader_event::AskCheckpoint& e);
  void on_event(const leader_event::EndRun& e);
  void on_event(const leader_event::Revoked& e);
  void on_event(const leader_event::AdminArrived& e);

  void said(const Incarnation& from, const std::string& name, const Join& m);
  void said(const Incarnation& from, const std::string& name, const Report& m);
  void said(const Incarnation& from, const std::string& name, const Heartbeat& m);
  void said(const Incarnation& from, const std::string& name, const Progress& m);
  void said(const Incarnation& from, const std::string& name, const starling::Leave& m);
  void said(const Incarnation& from, const std::string& name, const Death& m);
  void said(const Incarnation& from, const std::string& name, const Finished& m);
  void said(const Incarnation& from, const std::string& name, const ShardWritten& m);
  void said(const Incarnation& from, const std::string& name, const Unloadable& m);
  void said(const Incarnation&, const std::string&, const Notice&) {}  // the coordinator tells it
  void said(const Incarnation&, const std::string&, const Enrol&) {}   // the gateway answers it
  template <SaidByCoordinators Other>
  void said(const Incarnation&, const std::string&, const Other&) {}
  template <SaidAmongCoordinators Other>
  void said(const Incarnation&, const std::string&, const Other&) {}
  template <SaidByAdmins Other>
  void said(const Incarnation&, const std::string&, const Other&) {}

  void applied(const JobStarted&) { rates_ = group_.rates().size(); }
  void applied(const Joined& e);
  void applied(const LeaveAnnounced& e);
  void applied(const Lost& e);
  void applied(const Plan& e);
  void applied(const JobEnded& e);
  void applied(const Published& e);
  void applied(const Damaged& e);
  void applied(const Restarted& e);
  void applied(const CoordinatorAt&) {}

  // Whether there is something to decide. Asked after every event but those that only say how far a
  // worker is; costs the same however many workers there are and were.
  void review();
  void watch_progress();
  void try_prepare();
  void try_end();
  std::optional<JobEnded> end_of_finished(const Plan& plan) const;
  void end_well(const Plan& plan, JobEnded end);
  std::string newest_checkpoint() const;  // for a message

  void end_if_skipped(const StepRecord& record);
  void note_transport(event::TransportChosen transport);
  void tell_data_wait(const Incarnation& from, const std::string& name, std::uint8_t percent);
  void ask_checkpoint();
  void keep_what_leaves();
  void keep_by_time();
  template <class Command>
  void take(std::vector<Command> commands) {
    for (Command& command : commands)
      std::visit([this](auto& c) { carry_out(std::move(c)); }, command);
  }
  void carry_out(draft_command::Store c) { emit(std::move(c)); }
  void carry_out(draft_command::Tidy c) { emit(std::move(c)); }
  void carry_out(draft_command::Propose c) { propose(std::move(c.published)); }
  void carry_out(draft_command::Warn c) { warn(std::move(c.text)); }
  void carry_out(forming_command::Ask c) { send(c.who, Freeze{c.asked}); }
  void carry_out(forming_command::ProposePlan c) { propose_plan(std::move(c.plan)); }
  void carry_out(forming_command::ProposeRestart c);
  void carry_out(forming_command::End c) { end_job(c.code, std::move(c.reason)); }
  void carry_out(forming_command::Warn c) { warn(std::move(c.text)); }
  void propose_plan(Plan plan);
  void propose(Entry entry);
  void warn(std::string text);

  void end_job(std::uint8_t code, std::string reason);

  void reached(const Incarnation& who, Version version);
  bool kept_out_as_unreachable(const Incarnation& from, const std::string& name, const Join& m);
  bool key_in_use(const Incarnation& from, const std::string& name, const Join& m);
  std::optional<std::string> other_bits(const Join& m) const;
  std::optional<std::string> other_checkpoint(const Join& m) const;
  std::optional<std::string> other_data(const Digest& here);
  void resend();
  void check_invariants() const;
  void tell_left_out(const Incarnation& who);
  struct JobData {
    Digest digest;                      // {}: not known
    std::optional<Version> checkpoint;  // that says so; none: the group does
  };
  JobData data_of_job();
  // The first step of this run that a member of the last plan may have computed from data which the
  // member has not read to the end yet; unread_by() says it of one member.
  std::optional<Version> unread() const;
  std::optional<Version> unread_by(const Incarnation& who) const;
  Version first_of(const Incarnation& who) const;
  bool reads_data_of_job(const Incarnation& who);
  std::vector<Member> gone_unread(const Plan& next);
  Version doubted_after(const std::vector<Member>& gone) const;
  std::optional<Version> doubted_before() const;  // this run's start; Checkpoint::doubted_from
  Version doubted_from() const;
  void tell_other_modules();
  void tell_doubts_before(bool to_people);
  void tell_doubts(const Plan& plan);
  void tell_gone_unread(const std::vector<Member>& gone);
  void withdraw_checkpoints();
  Drafts::Origin origin();
  void refuse_other_data(const Incarnation& who, const std::string& name);
  // Marks this worker's results as doubtful; `what` as in "reads other data".
  void taint(const Incarnation& who, const std::string& name, const std::string& what);
  void review_differences(const std::vector<Difference>& differences);
  void tell_difference(const Difference& difference, std::optional<std::uint64_t> wrong);
  Version kept_since() const;
  void doubt_result(const Difference& difference);
  void doubt_from(Version first);
  // `first_heard`: of this doubt, by this leader.
  void doubt_checkpoints(bool first_heard = false);
  void expel(const Incarnation& who, const std::string& name);
  void take_out(const std::string& by, const AdminAsked& asked, AdminAnswered& answer);
  void ask_checkpoint(const std::string& by, AdminAnswered& answer);
  void ask_rate(const std::string& by, const AdminAsked& asked, AdminAnswered& answer);
  void form_for_rate();
  void add_rate(Plan& plan) const;
  void rate_changed();
  Version newest_version() const;
  void leave_out_evicted();
  void refuse(const Incarnation& who, const std::string& name, std::string why);
  bool others_have_all_of(const Incarnation& who) const;
  void tell_who_is_gone(const Plan& plan);
  void announce_epoch(std::optional<double> resume_ms = {}, std::optional<Pause> pause = {});
  void tell_of(const Incarnation& who, WorkerChange what);
  void tell_exposure(const Plan& plan);

  void send(const Incarnation& to, Message body) {
    commands_.push_back(leader_command::Send{to, std::move(body)});
  }
  void emit(LeaderCommand command) { commands_.push_back(std::move(command)); }
  void tell(Event event) { commands_.push_back(std::move(event)); }

  const LeaderConfig config_;
  const Group& group_;
  const std::uint64_t term_;
  const std::uint64_t began_ms_;
  LeaderCommands commands_;  // of the event being handled

  std::uint64_t now_ms_;
  std::uint64_t resent_ms_ = 0;
  bool review_due_ = false;
  Roster roster_;
  KeyClaims claims_;
  EpochProgress progress_;
  Forming forming_;
  Proposals proposals_;
  std::optional<StepRecord> last_record_;
  Version told_;
  event::TransportChosen transport_;  // the last that was told
  Suspicions suspicions_;
  static constexpr std::size_t kRefusedTold = 100;
  std::set<Nonce> refused_;              // joiners of which people were told
  std::set<Nonce> waits_for_data_;       // members of which people were told that they do
  std::optional<Version> tainted_from_;  // in this term; plans that follow keep it
  struct Eviction {
    Incarnation who;
    std::string worker, by;  // names
    bool tried = false;      // the others have been asked to go on without it
  };
  std::vector<Eviction> evictions_;  // that admins have begun in this term
  struct AskedRate {
    double peak_rate = 0;
    std::string by;  // name of an admin's key
  };
  std::optional<AskedRate> asked_rate_;  // waits for a plan
  std::size_t rates_ = 0;                // changes of the rate, as far as this leader has seen
  std::vector<Member> gone_unread_;      // of the plan that was proposed last
  std::map<std::uint64_t, std::string>
      wrong_;  // by counter: lives that compute wrongly, and the proof
  std::optional<event::EpochFormed> epoch_;  // to be announced with its resume_ms
  std::uint64_t committed_ms_ = 0;
  std::uint64_t checkpoint_ms_ = 0;  // when one was asked for by time, or was complete; 0: not yet
  std::uint64_t kept_ms_ = 0;        // since when no checkpoint was asked for because all leave
  Drafts drafts_;
};

}  // namespace starling::elastic
