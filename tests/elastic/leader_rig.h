#pragma once
// One leader, its log, and what it says. Its proposals are committed when the test says so.

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/membership/leader.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {

inline constexpr std::uint32_t kSegments = 4;

// Worker n is called "n" and has nonce n.
struct LeaderRig {
  explicit LeaderRig(Bugs bugs = {}) : group(bugs) {}
  virtual ~LeaderRig() = default;

  void lead(LeaderConfig config, std::uint64_t term) {
    leader.emplace(std::move(config), group, term, now);
    proposals.clear();
  }
  // Every command, before the next event.
  virtual void take(const LeaderCommand&) {}
  void on(const LeaderEvent& event) {
    for (const auto& command : leader->on(event)) {
      if (auto* propose = std::get_if<leader_command::Propose>(&command))
        proposals.push_back(propose->entry);
      if (auto* send = std::get_if<leader_command::Send>(&command)) sent.push_back(*send);
      take(command);
    }
  }
  void say(std::uint64_t nonce, Message body) {
    const auto* worker = group.find({nonce, Nonce(nonce)});
    const bool named = names.contains(nonce);
    const std::string name = named    ? names.at(nonce)
                             : worker ? worker->join.name
                                      : std::to_string(nonce);
    on(leader_event::Said{{nonce, Nonce(nonce)}, name, std::move(body)});
  }
  void ask_to_join(std::uint64_t nonce) {
    Join join;
    join.who = {0, Nonce(nonce)};
    join.name = std::to_string(nonce);
    join.fingerprint = {7, 7};
    join.fingerprint_text = fingerprint_text;
    join.data = data;
    if (roles.contains(nonce)) join.role = roles.at(nonce);
    if (machines.contains(nonce)) join.machine = machines.at(nonce);
    say(nonce, join);
  }
  void join(std::uint64_t nonce) {
    ask_to_join(nonce);
    commit();
  }
  void die(std::uint64_t nonce) {
    say(nonce, Death{{nonce, Nonce(nonce)}});
    commit();
  }
  void pass_time(std::uint64_t ms) { on(leader_event::Tick{now += ms}); }
  // Time passes, and these are heard every 50 ms; they say the same each time. All others are
  // silent.
  void pass_time_hearing(const std::vector<std::uint64_t>& nonces, std::uint64_t ms,
                         const Heartbeat& beat = {}) {
    for (const std::uint64_t end = now + ms; now < end;) {
      pass_time(std::min<std::uint64_t>(50, end - now));
      for (const std::uint64_t nonce : nonces) say(nonce, beat);
    }
  }
  // Raft commits everything that was proposed so far.
  void commit() {
    while (!proposals.empty()) {
      const Entry entry = proposals.front();
      proposals.pop_front();
      apply(entry);
    }
  }
  void apply(const Entry& entry) {
    const bool valid = group.apply(entry);
    on(leader_event::Applied{entry, valid});
  }
  // The id of the last Freeze.
  EpochId asked() const {
    EpochId id;
    for (const auto& send : sent)
      if (const auto* freeze = std::get_if<Freeze>(&send.body)) id = std::max(id, freeze->asked);
    return id;
  }
  template <class T>
  const T* first_proposed() const {
    for (const Entry& entry : proposals)
      if (const auto* found = std::get_if<T>(&entry)) return found;
    return nullptr;
  }

  std::map<std::uint64_t, WorkerRole> roles;   // of workers that do not do both
  std::map<std::uint64_t, Machine> machines;   // of workers that say something of theirs
  std::map<std::uint64_t, std::string> names;  // in keys, by nonce; others are named by their nonce
  std::string fingerprint_text;                // of workers that join from now on
  Digest data{8, 8};  // of workers that join from now on; zeros: not read yet
  Group group;
  std::uint64_t now = 1;
  std::optional<Leader> leader;
  std::deque<Entry> proposals;  // not committed yet
  std::vector<leader_command::Send> sent;
};

}  // namespace starling::elastic
