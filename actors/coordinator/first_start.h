#pragma once
// A coordinator that is started with --new asks the others whether the group has begun
// already: a voter that lost its log and believes itself new could vote twice in a term
// (docs/decisions/016-a-wiped-coordinator-asks.md). Until it knows, it takes part in nothing.
//
// Threads: none; FirstStart is a value. Time is the caller's.

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/wire/messages.h"

namespace starling::actors {

class FirstStart {
 public:
  // `round` differs from life to life; `size`: members of the group.
  FirstStart(std::uint32_t self, std::uint32_t size, std::uint64_t round)
      : self_(self), round_(round), answered_(size) {
    answered_[self] = true;
  }

  // Returns a question for each member that has not answered.
  std::vector<RaftMessage> questions() const {
    std::vector<RaftMessage> all;
    for (std::uint32_t to = 0; to < answered_.size(); ++to) {
      if (answered_[to]) continue;
      RaftMessage question{RaftKind::kRecall, self_, to, /*term=*/0};
      question.round = round_;
      all.push_back(std::move(question));
    }
    return all;
  }

  // Answers a member that asks meanwhile: this member knows nothing yet, like
  // one whose log was lost. The asker has no log either, and it cannot begin
  // before it has this answer, so a log that it gets later proves nothing.
  RaftMessage answer(const RaftMessage& question) {
    if (question.from < answered_.size()) answered_[question.from] = true;
    RaftMessage reply{RaftKind::kRecallReply, self_, question.from, /*term=*/0};
    reply.round = question.round;
    return reply;
  }

  // `m.from` is the sender.
  void take(const RaftMessage& m) {
    if (m.kind != RaftKind::kRecallReply || m.round != round_ || m.from >= answered_.size()) return;
    if (answered_[m.from]) return;
    answered_[m.from] = true;
    // A member without its log knows nothing of the group; one without an entry never had a leader.
    if (m.granted && m.last_index > 0) begun_ = m.from;
  }

  // A member that has the group's log; none: no member has said so.
  const std::optional<std::uint32_t>& begun() const { return begun_; }

  // This member of the group takes part in it: so it has begun.
  void hear_member(std::uint32_t place) { begun_ = place; }

  // Returns whether this member may begin as new. It waits for members
  // that do not answer, but not for ever: a group may begin without them.
  // With spares it waits for all: those that do not answer may have been replaced.
  bool over(std::chrono::milliseconds waited, bool spares = false) const {
    if (begun_) return false;
    for (const bool answered : answered_)
      if (!answered) return !spares && waited >= kWait;
    return true;
  }
  static constexpr std::chrono::milliseconds kWait{10000};

 private:
  const std::uint32_t self_;
  const std::uint64_t round_;
  std::vector<bool> answered_;
  std::optional<std::uint32_t> begun_;
};

}  // namespace starling::actors
