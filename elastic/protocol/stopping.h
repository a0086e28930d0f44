#pragma once
// Stopping is how a worker stops an epoch, and promises (R9; docs/design.md, section 6, "Freeze and
// report"). It owns whether the worker is stopped, which epochs still close, and the promise.
//
//   going      it runs an epoch, or waits for a plan
//   reporting  stopped; it reports as soon as everything of the epoch is closed, and again
//   left       stopped by a switch to an epoch without it: it reports when it is asked to
//
// Threads: none; a value.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/ids.h"
#include "core/wire/frame.h"
#include "core/wire/messages.h"

namespace starling::elastic {

class Stopping {
 public:
  bool stopped() const { return state_ != State::kGoing; }
  bool reporting() const { return state_ == State::kReporting; }
  bool closing() const { return !closing_.empty(); }  // Stop was sent and is not answered yet

  // A committed plan was seen, or a report at this id was asked for.
  void seen(const EpochId& plan) { highest_plan_ = std::max(highest_plan_, plan); }
  void asked(const EpochId& id) { asked_ = std::max(asked_, id); }
  // R9: whether the worker may enter this plan: none below its promise.
  bool may_enter(const EpochId& plan) const { return plan >= promised_; }

  // The worker is a member of a forced or fresh plan, or a joiner of a prepared one.
  void enters() {
    joins();
    broken_.clear();
    fault_ = LinkFault::kEnded;
  }
  void joins() {
    STARLING_CHECK(closing_.empty());
    state_ = State::kGoing;
  }
  void leaves() { state_ = State::kLeft; }
  // The epoch stops here. `broken`: the peers whose connections ended it; `fault`: how.
  void stop(std::vector<Incarnation> broken, LinkFault fault) {
    state_ = State::kReporting;
    broken_ = std::move(broken);
    fault_ = fault;
  }
  // A worker that is in no epoch was asked for a report.
  void report() { state_ = State::kReporting; }
  void close(std::shared_ptr<const Plan> plan) {
    const EpochId epoch = plan->id;
    closing_.emplace(epoch, std::move(plan));
  }
  void closed(const EpochId& epoch) { closing_.erase(epoch); }
  // A connection of an epoch that closes had broken. The leader's question, which another worker's
  // report caused, may overtake the cause. An end of file says nothing by then: all others close.
  void broke(const EpochId& epoch, Rank peer, LinkFault fault) {
    const auto at = closing_.find(epoch);
    if (at == closing_.end() || peer >= at->second->members.size()) return;
    if (fault == LinkFault::kEnded || fault_ != LinkFault::kEnded) return;
    broken_ = {at->second->members[peer].who};
    fault_ = fault;
  }

  // The promise of a report, if one is due: nothing of the epoch can be sent or received any more.
  std::optional<EpochId> promise() {
    if (!reporting() || closing()) return std::nullopt;
    promised_ = std::max(promised_, asked_ > highest_plan_ ? asked_ : highest_plan_.next());
    return promised_;
  }
  const std::vector<Incarnation>& broken() const { return broken_; }
  LinkFault fault() const { return fault_; }  // of broken()

  void check_invariants() const {
    if (!closing_.empty()) STARLING_CHECK(stopped());
    if (fault_ != LinkFault::kEnded) STARLING_CHECK(!broken_.empty());
  }

 private:
  enum class State : std::uint8_t { kGoing, kReporting, kLeft };

  State state_ = State::kGoing;
  EpochId promised_;      // enters no plan below it; never falls
  EpochId highest_plan_;  // seen
  EpochId asked_;         // by the last Freeze
  std::map<EpochId, std::shared_ptr<const Plan>> closing_;
  std::vector<Incarnation> broken_;
  LinkFault fault_ = LinkFault::kEnded;
};

}  // namespace starling::elastic
