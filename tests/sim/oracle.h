#pragma once
// What must never be seen, whatever the machines think: checked from outside after every event,
// from the processes' memory and everything that was sent. Names in violations: R rules and P
// promises of docs/design.md; T rules of the trainer: T1 one active epoch, T2 a
// worker that is called dead is dead, T4 committed stays, T9 no stale compute, T10 epoch ids rise.
//
// The oracle has its own small model of the plan chain, of who holds what and of who voted; it
// never asks the code under test to judge itself.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/wire/frame.h"
#include "core/wire/messages.h"
#include "elastic/membership/leader.h"
#include "elastic/protocol/worker.h"
#include "tests/sim/numbers.h"

namespace starling::sim {

class World;
class WorkerProcess;
class CoordinatorProcess;
struct Link;

class Oracle {
 public:
  Oracle(World& world, const Numbers& numbers);

  const std::string& violation() const { return violation_; }
  void violated(const std::string& what);

  // A worker's machine handled an event; its commands are not carried out yet. Then they are.
  void after_worker(const WorkerProcess& p);
  void after_commands(const WorkerProcess& p);
  void says(const WorkerProcess& p, const Message& body);
  void sends(const WorkerProcess& p, const EpochId& epoch);
  void takes(const WorkerProcess& p, const EpochId& sent_in, const EpochId& taken_in);
  void connects(const WorkerProcess& p, const Plan& plan);
  void begins(const WorkerProcess& p, Version version, MicroBatch m);
  // From these parameters, all of which were read.
  void computes(const WorkerProcess& p, Version version, MicroBatch m, std::uint64_t params);
  void computed(const WorkerProcess& p, Version version, MicroBatch m, std::uint64_t params);
  void computed_again(const WorkerProcess& p, std::uint64_t params);
  void opens(const WorkerProcess& p, const elastic::worker_command::OpenStep& step);
  void votes(const WorkerProcess& p, const EpochId& epoch, const Vote& vote);
  void applies(const WorkerProcess& p, const StepRecord& record);
  void applied(const WorkerProcess& p, Version version);
  void clears(const WorkerProcess& p);
  void gathers(const WorkerProcess& p, Version version, const StepRecord& record,
               const std::vector<std::vector<Rank>>& holders);
  void refused(const WorkerProcess& p, const std::string& text);
  // Its device transport failed, or brought what is wrong.
  void transport_failed(const WorkerProcess& p, const Plan& plan, const std::string& text);
  void killed(const WorkerProcess& p);
  void exited(const WorkerProcess& p, const elastic::worker_command::Exit& exit);

  void after_coordinator(const CoordinatorProcess& c);
  void told(const Event& event);

  // R3's plant: true once, for a contribution frame that the receiver is to lose.
  bool plant_lost_contribution(const Frame& frame);

  static Rank rank_of(const Plan& plan, Nonce nonce);
  const std::vector<RaftEntry>& committed() const { return committed_; }
  const std::vector<EpochId>& chain() const { return chain_; }
  const Plan& plan(const EpochId& id) const { return valid_.at(id); }
  const std::optional<JobEnded>& end() const { return end_; }
  const Reference& reference() const { return reference_; }
  // Highest version that anybody has reached.
  Version reached() const { return reached_; }
  // R8, counted: micro-batches of a step that a worker has begun, and all that were begun again.
  std::uint64_t begun_by(const WorkerProcess& p, Version version) const;
  std::uint64_t begun_again() const { return begun_again_; }
  // Every copy of some segment that could go on is gone.
  bool state_lost() const;
  bool silent(const WorkerProcess& p) const;
  bool apart(const WorkerProcess& p) const;
  std::string status() const;  // for a run that does not end

 private:
  struct Life {
    Version version = kNoVersion;
    EpochId entered;
    EpochId promised;  // by its reports
    std::set<EpochId> promises;
    EpochId silent;                 // it sends nothing in this epoch or an older one
    std::optional<Version> passed;  // last step whose vote passed here
    bool member = false;            // of some plan, once
    EpochId without;                // prepared plan that leaves it out; may not come to pass
    bool left_out = false;          // for good
  };
  struct Ballot {
    std::map<Nonce, Vote> votes;
  };

  void check_pass(const WorkerProcess& p, Life& life);
  void check_entry(const WorkerProcess& p, Life& life);
  void check_way(const WorkerProcess& p, const elastic::worker_command::OpenStep& step);
  void check_record(const StepRecord& record, const char* where);
  void check_evaluation(const event::Evaluated& evaluation);
  Digest digest_due(Version v) const;  // what the record of step v has to say
  // No step follows this version: the job's last, or one that a skipped step made where that ends it.
  bool last(Version version) const;
  void check_report(const WorkerProcess& p, const Report& report);
  void check_progress(const WorkerProcess& p, const Progress& progress);
  void check_told();
  void check_ended(const JobEnded& end);
  void check_last_words(const WorkerProcess& p);
  void check_committed(Version reached, const EpochId& epoch);
  bool held_in(const Plan& plan, Rank rank, SegmentId segment, Version version) const;
  bool current_copy(const WorkerProcess& p, SegmentId segment, Version version) const;

  void take_entry(const RaftEntry& entry);
  void take_plan(const Plan& plan);
  void take_rates(const Plan& plan);
  void take_checkpoint(const Published& published);
  void take_restart(const Restarted& restarted);
  bool given_up(const EpochId& epoch) const;  // by a restart: what it goes on to do counts no more
  void follow_members(const Plan& plan);
  bool entered_by_all(const Plan& plan) const;
  void take_end(const JobEnded& end);
  void check_holders(const Plan& plan);
  void check_fence(const Plan& plan);
  void check_reports(const Plan& plan);
  void count_plan(const Plan& plan);
  bool start_is_lost() const;
  bool fenced(const Plan& epoch, const Plan& by) const;
  bool never_begins(const Plan& epoch, const Plan& by) const;
  const WorkerProcess* find(Nonce nonce) const;
  std::string name(const WorkerProcess& p) const;

  World& world_;
  const Numbers& numbers_;
  Reference reference_;
  std::string violation_;
  std::map<Nonce, Life> lives_;
  std::map<std::pair<EpochId, Version>, Ballot> ballots_;
  std::map<std::pair<EpochId, Version>, std::vector<Rank>> shares_;  // as the first to open it says
  std::map<EpochId, Version> passed_;  // highest version reached in an epoch
  std::map<EpochId, Version> first_;   // first step of an epoch, once known
  std::map<std::pair<Version, MicroBatch>, std::vector<Nonce>> begun_;  // in order
  std::map<std::pair<Version, MicroBatch>, std::set<Nonce>> computers_;
  std::uint64_t begun_again_ = 0;
  Version reached_ = 0;
  bool planted_ = false;
  bool last_evaluated_ = false;  // and an observer was told
  std::map<Version, std::uint64_t> ledger_hashes_;
  // Steps with all rows: the lives that said so, and what reached an observer.
  std::map<Version, std::vector<const WorkerProcess*>> said_;
  std::set<Version> told_;
  // The group.
  std::vector<RaftEntry> committed_;
  std::map<EpochId, Plan> valid_;
  std::vector<EpochId> chain_;
  std::map<Version, Digest> checkpoints_;  // complete ones, and not known to be damaged
  std::vector<EpochId> restarts_;          // the epochs that were lost
  std::optional<Version> restart_;         // the next plan is fresh, from here
  std::optional<JobEnded> end_;
  std::map<std::uint64_t, std::uint32_t> leaders_;  // by term
  std::uint64_t kills_ = 0;
};

}  // namespace starling::sim
