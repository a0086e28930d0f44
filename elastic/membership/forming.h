#pragma once
// Forming leads from the first notice that an epoch is over to the fresh or forced plan that
// follows (docs/design.md, section 6, "Freeze and report" and "Whom to wait for"; R10 to R13). It
// asks for reports, waits for those that it needs, and proposes a plan, a restart, or the end. It
// owns the question, which workers its answer leaves out, and the ids of its leader's term.
//
// Threads: none; a value that belongs to its leader. Borrows the leader's config, the group, and
// the roster, whose time it goes by.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/wire/messages.h"
#include "elastic/membership/group.h"
#include "elastic/membership/leader_config.h"
#include "elastic/membership/links.h"
#include "elastic/membership/resume.h"
#include "elastic/membership/roster.h"

namespace starling::elastic {

namespace forming_command {
struct Ask {  // a candidate, for a report with this promise
  Incarnation who;
  EpochId asked;
};
struct ProposePlan {
  Plan plan;
};
struct ProposeRestart {
  Restarted restarted;
};
struct End {
  std::uint8_t code = 0;
  std::string reason;
};
struct Warn {
  std::string text;
};
}  // namespace forming_command
using FormingCommand =
    std::variant<forming_command::Ask, forming_command::ProposePlan,
                 forming_command::ProposeRestart, forming_command::End, forming_command::Warn>;
using FormingCommands = std::vector<FormingCommand>;

class Forming {
 public:
  Forming(const LeaderConfig& config, const Group& group, Roster& roster, std::uint64_t term);

  // Whether reports are asked for now.
  bool active() const { return question_.has_value(); }
  // Leaves this worker out as well, as leave_out() does, of the epoch that is being formed (checked: one is).
  void leave_out_too(const Incarnation& who);
  // Asks if there is a reason to, and decides if all workers that are waited for have reported. Not
  // while something is proposed.
  FormingCommands review();
  // Asks the workers that have not reported yet once more.
  FormingCommands ask_again();
  // Asks without these workers, which hold up all others since then. Their reports count only if
  // the others lack something that they have; with `at_any_price` they never count.
  FormingCommands leave_out(const std::vector<Incarnation>& who, std::uint64_t since_ms,
                            std::string cause, bool at_any_price);
  // Asks those that are there, as all are to change something at the same step. Requires that none is being formed.
  FormingCommands form_anew(std::string cause);

  // Notes what ends the running epoch; the first notice counts.
  void notice(std::uint64_t at_ms);
  void reported(const Report& report);

  // Cost is what the last plan has cost, from the first notice to the question and to its commit;
  // none if it is not the answer to the question.
  struct Cost {
    std::uint64_t detect_ms = 0, form_ms = 0;
  };
  std::optional<Cost> committed(const Plan& plan);
  void restarts();                                     // from a checkpoint, with newcomers
  void checkpoints_withdrawn() { withdrawn_ = true; }  // those above the group's start are gone
  // Describes the newest checkpoint, for messages about a job that cannot go on.
  // `doubted_from`: a doubt that the log may not have yet.
  std::string newest_checkpoint(Version doubted_from = kNoVersion) const;

  EpochId fresh_id() { return EpochId{term_, ++counter_}; }  // of this term (R10)
  Links& links() { return links_; }

  void check_invariants() const;

 private:
  // A question: an epoch that is being formed; reports with its promise are asked for.
  struct Question {
    EpochId asked;
    std::uint64_t noticed_ms = 0;
    std::uint64_t begun_ms = 0;
    std::string cause;
    // Nonces of workers that hold up all others. At first only if others have all of their state.
    std::set<Nonce> without;
    bool at_any_price = false;
    bool nothing_is_wrong = false;           // its own freeze is what breaks the members' links
    std::optional<WorkerRole> told_lacking;  // the role that is waited for, and was told of
  };
  // The candidates' answers to it, and which of them are missing.
  struct Answers {
    std::vector<Reporter> reporters;
    std::vector<Incarnation> missing;
    bool lost = false;  // a candidate is dead, or left out
  };

  std::string reason();  // empty: nothing is to be formed
  std::string why_broken();
  bool stopped_since(const Report& report) const;
  bool start_is_due() const;
  bool newcomers_are_there() const;

  void ask(std::string cause);
  void ask_who_has_not_reported();
  std::optional<Answers> answers();  // none: a report is still waited for, or all are asked again
  void decide();
  bool in_time(const Incarnation& who);
  bool patient() const;  // something that is needed may still come
  bool needed(const Incarnation& who, const std::vector<Reporter>& reporters, Version base) const;
  std::optional<WorkerRole> lacking(const std::vector<Reporter>& reporters,
                                    const Resume& resume) const;
  void wait_for(WorkerRole role, std::size_t workers, bool start);
  bool suffice(const std::vector<Reporter>& reporters) const;
  bool fenced(const std::vector<Reporter>& reporters) const;
  bool never_begins(const std::vector<Reporter>& reporters) const;
  bool died_with_its_steps(const std::vector<Reporter>& reporters) const;
  void forget_links(const std::vector<Incarnation>& missing,
                    const std::vector<Reporter>& reporters);
  std::optional<Links::Apart> leave_out_bad_links(std::vector<Reporter>& reporters,
                                                  const Resume& resume);
  void propose(std::vector<Reporter> reporters, const Resume& old);
  void lack_state(const std::vector<Reporter>& reporters, Version base);
  void lose_state(const std::vector<Reporter>& reporters, Version base);
  void lose_apart(const std::vector<Reporter>& reporters, const Links::Apart& apart);
  std::optional<forming_command::End> own_end();
  void all_have_left(const std::vector<Reporter>& reporters);
  bool restart(const std::vector<Reporter>& reporters, const std::string& why);
  void no_newcomer();
  void end(std::uint8_t code, std::string reason);

  const LeaderConfig& config_;
  const Group& group_;
  Roster& roster_;
  const std::uint64_t term_;
  const std::uint64_t began_ms_;
  FormingCommands commands_;  // of the call being handled

  std::uint64_t counter_ = 0;  // of the last id used in this term
  std::optional<Question> question_;
  std::uint64_t noticed_ms_ = 0;  // first notice of what ends the running epoch; 0 = none
  std::uint64_t restarted_ms_;    // since when newcomers are waited for
  bool withdrawn_ = false;
  Links links_;
};

// Whether all members that may have state announced their leave, as far as they are not lost.
bool everybody_leaves(const Plan& plan, const Group& group);

}  // namespace starling::elastic
