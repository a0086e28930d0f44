#pragma once
// Proposals is what a leader has proposed and Raft has not committed yet. The leader proposes
// nothing a second time while it is under way, and decides nothing about epochs while a decision
// about them is (R10: one uncommitted plan at a time).
//
// Threads: none; a value.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>

#include "core/base/check.h"
#include "core/wire/messages.h"

namespace starling::elastic {

class Proposals {
 public:
  explicit Proposals(std::uint64_t term) : term_(term) {}

  bool plan() const { return plan_; }  // or a restart, which ends the last one
  bool end() const { return end_; }    // of the job: for good
  bool damage() const { return damage_; }
  bool deciding() const { return plan_ || end_ || damage_; }
  // The name with which this life is to join; null: it is not about to.
  const std::string* joining(const Incarnation& who) const {
    const auto it = joining_.find(who.nonce);
    return it == joining_.end() ? nullptr : &it->second;
  }
  bool leaving(const Incarnation& who) const { return leaving_.count(who.nonce) != 0; }
  bool losing(const Incarnation& who) const { return losing_.count(who.nonce) != 0; }

  void proposed(const Entry& entry) {
    std::visit([this](const auto& e) { take(e); }, entry);
  }
  // The entry is committed, with effect or without.
  void applied(const Entry& entry) {
    std::visit([this](const auto& e) { settle(e); }, entry);
  }

 private:
  void take(const Plan&) { begin(plan_); }
  void take(const Restarted&) { begin(plan_); }
  void take(const JobEnded&) { begin(end_); }
  void take(const Damaged&) { begin(damage_); }
  void take(const Joined& e) { joining_.emplace(e.join.who.nonce, e.join.name); }
  void take(const LeaveAnnounced& e) { leaving_.insert(e.who.nonce); }
  void take(const Lost& e) { losing_.insert(e.who.nonce); }
  void take(const JobStarted&) {}
  void take(const Published&) {}
  void take(const CoordinatorAt&) {}

  void settle(const Plan& e) { plan_ = plan_ && e.id.term != term_; }
  void settle(const Restarted&) { plan_ = false; }
  void settle(const JobEnded&) {}
  void settle(const Damaged&) { damage_ = false; }
  void settle(const Joined& e) { joining_.erase(e.join.who.nonce); }
  void settle(const LeaveAnnounced& e) { leaving_.erase(e.who.nonce); }
  void settle(const Lost& e) { losing_.erase(e.who.nonce); }
  void settle(const JobStarted&) {}
  void settle(const Published&) {}
  void settle(const CoordinatorAt&) {}

  static void begin(bool& under_way) {
    STARLING_CHECK(!under_way);
    under_way = true;
  }

  const std::uint64_t term_;
  bool plan_ = false, end_ = false, damage_ = false;
  std::map<Nonce, std::string> joining_;  // names
  std::set<Nonce> losing_, leaving_;
};

}  // namespace starling::elastic
