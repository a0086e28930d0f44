#pragma once
// For directed schedules of the Raft core: messages by hand, one member, or a whole group.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "elastic/raft/raft.h"

namespace starling::elastic::raft_test {

inline constexpr std::uint64_t kT = 100;  // election timeout, ms

inline RaftConfig config(std::uint32_t self, std::uint32_t size, RaftBug bug = RaftBug::kNone) {
  RaftConfig c;
  c.self = self;
  c.size = size;
  c.election_ms = kT;
  c.heartbeat_ms = 30;
  c.seed = 7;
  c.bug = bug;
  return c;
}

// A log from the terms of its entries; data tells the term.
inline std::vector<RaftEntry> log_of(const std::vector<std::uint64_t>& terms) {
  std::vector<RaftEntry> log;
  for (const auto term : terms) {
    log.push_back({log.size() + 1, term, Bytes{static_cast<std::uint8_t>(term)}});
  }
  return log;
}

inline std::vector<std::uint64_t> terms_of(const Raft& raft) {
  std::vector<std::uint64_t> terms;
  for (const RaftEntry& e : raft.log()) terms.push_back(e.term);
  return terms;
}

struct Out {
  std::vector<RaftMessage> messages;
  std::vector<RaftEntry> committed;
};

// Duties 1 to 5 until nothing is left.
inline Out drain(Raft& raft) {
  Out out;
  while (raft.has_ready()) {
    Ready ready = raft.take_ready();
    raft.persisted();
    for (RaftMessage& m : ready.messages) out.messages.push_back(std::move(m));
    for (RaftEntry& e : ready.committed) out.committed.push_back(std::move(e));
  }
  return out;
}

inline RaftMessage last_of(Raft& raft) {
  const Out out = drain(raft);
  REQUIRE(!out.messages.empty());
  return out.messages.back();
}

inline RaftMessage request(RaftKind kind, std::uint32_t from, std::uint64_t term,
                           std::uint64_t index, std::uint64_t last_term) {
  RaftMessage m{kind, from, 0, term};
  m.last_index = index;
  m.last_term = last_term;
  return m;
}

inline RaftMessage append(std::uint32_t from, std::uint64_t term, std::uint64_t prev,
                          std::uint64_t prev_term, std::vector<std::uint64_t> terms,
                          std::uint64_t commit = 0) {
  RaftMessage m = request(RaftKind::kAppend, from, term, prev, prev_term);
  m.commit = commit;
  for (const auto t : terms) {
    m.entries.push_back({prev + m.entries.size() + 1, t, Bytes{static_cast<std::uint8_t>(t)}});
  }
  return m;
}

inline RaftMessage reply(RaftKind kind, std::uint32_t from, std::uint64_t term, bool granted,
                         std::uint64_t round = 0) {
  RaftMessage m{kind, from, 0, term};
  m.granted = granted;
  m.round = round;
  return m;
}

// A whole group; messages arrive at once unless a link is cut.
struct RaftGroup {
  std::vector<Raft> members;
  std::vector<std::vector<RaftEntry>> applied;
  std::function<bool(const RaftMessage&)> cut = [](const RaftMessage&) { return false; };
  std::uint64_t now = 0;
  std::uint64_t messages = 0;

  explicit RaftGroup(std::uint32_t size, std::vector<std::vector<std::uint64_t>> logs = {},
                     std::uint64_t term = 0) {
    logs.resize(size);
    applied.resize(size);
    for (std::uint32_t i = 0; i < size; ++i) {
      members.emplace_back(config(i, size), HardState{term, {}}, log_of(logs[i]));
    }
  }
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t i = 0; i < members.size(); ++i) {
        Out out = drain(members[i]);
        moved = moved || !out.messages.empty();
        for (RaftEntry& e : out.committed) applied[i].push_back(std::move(e));
        for (const RaftMessage& m : out.messages) {
          ++messages;
          if (!cut(m)) members[m.to].receive(m);
        }
      }
    }
  }
  void run(std::uint64_t ms) {
    for (const auto end = now + ms; now < end;) {
      now += 5;
      for (Raft& raft : members) raft.tick(now);
      settle();
    }
  }
  std::optional<std::uint32_t> leader() const {
    std::optional<std::uint32_t> found;
    for (std::uint32_t i = 0; i < members.size(); ++i) {
      if (members[i].role() != RaftRole::kLeader) continue;
      if (!found || members[i].term() > members[*found].term()) found = i;
    }
    return found;
  }
  void isolate(std::uint32_t one) {
    cut = [one](const RaftMessage& m) { return m.from == one || m.to == one; };
  }
  void heal() {
    cut = [](const RaftMessage&) { return false; };
  }
};

// Member 0 of `size` that has just been elected in the next term, with all it had to say sent.
inline Raft leader_of(std::uint32_t size, std::vector<RaftEntry> log = {}, std::uint64_t term = 0,
                      RaftBug bug = RaftBug::kNone) {
  Raft raft(config(0, size, bug), HardState{term, {}}, std::move(log));
  raft.tick(1000);
  raft.tick(1000 + 2 * kT);
  const auto asked = last_of(raft);
  REQUIRE(asked.kind == RaftKind::kPreVote);
  for (std::uint32_t i = 1; i < size; ++i) {
    raft.receive(reply(RaftKind::kPreVoteReply, i, term + 1, true, asked.round));
  }
  drain(raft);
  for (std::uint32_t i = 1; i < size; ++i) {
    raft.receive(reply(RaftKind::kVoteReply, i, term + 1, true, asked.round));
  }
  REQUIRE(raft.role() == RaftRole::kLeader);
  return raft;
}

inline RaftMessage ack(std::uint32_t from, const Raft& leader, std::uint64_t match) {
  auto m = reply(RaftKind::kAppendReply, from, leader.term(), true, 1000 + 2 * kT);
  m.match = match;
  return m;
}

}  // namespace starling::elastic::raft_test
