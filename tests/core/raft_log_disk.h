#pragma once
// For tests of the Raft log: a disk of one file that fails and forgets, and what a log is.

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/formats/raft_log.h"

namespace starling::raft_log_test {

inline constexpr JobId kJob{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

// A disk of one file: writes wait for a sync, and what a crash leaves of them is drawn by sector.
struct Disk {
  Bytes durable;
  Bytes visible;
  Bytes aside;
  Bytes mark;  // never synced: lost with the machine
  int syncs = 0;
  int calls_until_failure = -1;  // counts write, sync and resize; -1: never
  std::vector<std::pair<std::uint64_t, std::uint64_t>> unsynced;  // [from, to)

  void crash(std::uint64_t seed) {
    Bytes after = durable;
    for (const auto& [from, to] : unsynced) {
      for (auto at = from; at < to; at = (at / 512 + 1) * 512) {
        const auto end = std::min(to, (at / 512 + 1) * 512);
        if (mix64(seed, at) % 2 == 0) continue;
        if (after.size() < end) after.resize(end);
        // Now and then only the beginning of a sector arrives, in words.
        const auto words = (end - at) / 8;
        const auto kept =
            mix64(seed, ~at) % 4 == 0 ? at + mix64(seed, at + 1) % (words + 1) * 8 : end;
        std::copy(visible.begin() + static_cast<std::ptrdiff_t>(at),
                  visible.begin() + static_cast<std::ptrdiff_t>(kept),
                  after.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    durable = visible = after;
    mark.clear();
    unsynced.clear();
    calls_until_failure = -1;
  }
};

class MemoryFile final : public RaftLogFile {
 public:
  explicit MemoryFile(Disk& disk) : disk_(disk) {}
  std::string name() const override { return "raft.log"; }
  Result<Bytes> read() override { return disk_.visible; }
  Result<> write(std::uint64_t offset, ByteView bytes) override {
    if (bytes.empty()) return ok();
    if (fails()) {  // part of it may have gone through
      bytes = bytes.first(bytes.size() / 16 * 8);
      put(offset, bytes);
      return Error(Code::kUnavailable, "planted");
    }
    put(offset, bytes);
    return ok();
  }
  Result<> sync() override {
    if (fails()) return Error(Code::kUnavailable, "planted");
    ++disk_.syncs;
    disk_.durable.resize(disk_.visible.size());
    for (const auto& [from, to] : disk_.unsynced) {  // only what counts as dirty is written
      std::copy(disk_.visible.begin() + static_cast<std::ptrdiff_t>(from),
                disk_.visible.begin() + static_cast<std::ptrdiff_t>(to),
                disk_.durable.begin() + static_cast<std::ptrdiff_t>(from));
    }
    disk_.unsynced.clear();
    return ok();
  }
  Result<> resize(std::uint64_t bytes) override {
    if (fails()) return Error(Code::kUnavailable, "planted");
    disk_.visible.resize(bytes);
    disk_.durable.resize(std::min<std::uint64_t>(disk_.durable.size(), bytes));
    return ok();
  }
  Result<> keep_aside(ByteView bytes) override {
    disk_.aside.assign(bytes.begin(), bytes.end());
    return ok();
  }
  Result<> replace(ByteView bytes) override {
    if (fails()) return Error(Code::kUnavailable, "planted");
    ++disk_.syncs;
    disk_.durable.assign(bytes.begin(), bytes.end());
    disk_.visible = disk_.durable;
    disk_.unsynced.clear();
    return ok();
  }
  Result<> check() override { return ok(); }
  Result<> write_mark(ByteView bytes) override {
    disk_.mark.assign(bytes.begin(), bytes.end());
    return ok();
  }
  Bytes read_mark() override { return disk_.mark; }

 private:
  bool fails() { return disk_.calls_until_failure >= 0 && disk_.calls_until_failure-- == 0; }
  void put(std::uint64_t offset, ByteView bytes) {
    if (disk_.visible.size() < offset + bytes.size()) disk_.visible.resize(offset + bytes.size());
    std::copy(bytes.begin(), bytes.end(),
              disk_.visible.begin() + static_cast<std::ptrdiff_t>(offset));
    disk_.unsynced.push_back({offset, offset + bytes.size()});
  }
  Disk& disk_;
};

inline Result<RaftLog> open(Disk& disk, const JobId& job = kJob, std::uint32_t member = 1) {
  const auto life = disk.visible.empty() ? RaftLog::Life::kFirst : RaftLog::Life::kLater;
  return RaftLog::open_on(std::make_unique<MemoryFile>(disk), job, member, life);
}

inline RaftEntry entry(std::uint64_t index, std::uint64_t term, std::size_t bytes) {
  RaftEntry e{index, term, Bytes(bytes)};
  for (std::size_t i = 0; i < bytes; ++i) {
    e.data[i] = static_cast<std::uint8_t>(1 + mix64(index * 1000 + term, i) % 255);
  }
  return e;
}

// What a log is: the model that the file is compared with.
struct State {
  RaftTerm term;
  std::vector<RaftEntry> entries;  // after the snapshot
  std::uint64_t snapshot_index = 0, snapshot_term = 0;
  Bytes snapshot;
  std::optional<RaftMembers> members;  // of the snapshot
  bool operator==(const State&) const = default;
  std::uint64_t last_index() const { return snapshot_index + entries.size(); }
};

inline State state_of(RaftLog& log) {
  State state{log.term(), log.take_entries()};
  const RaftLogSnapshot snapshot = log.take_snapshot();
  state.snapshot_index = snapshot.index;
  state.snapshot_term = snapshot.term;
  if (snapshot.data) state.snapshot = *snapshot.data;
  state.members = snapshot.members;
  return state;
}

struct Save {
  std::optional<RaftTerm> term;
  std::vector<RaftEntry> append;
  std::optional<RaftLogSnapshot> snapshot{};
};

// Of the first so many entries of a log whose last term is `term`.
inline RaftLogSnapshot snapshot(std::uint64_t index, std::uint64_t term, std::size_t bytes) {
  return {index, term, std::make_shared<const Bytes>(entry(index, term, bytes).data)};
}

inline State after(State state, const Save& save) {
  if (save.term) state.term = *save.term;
  if (save.snapshot) {
    state.entries.clear();
    state.snapshot_index = save.snapshot->index;
    state.snapshot_term = save.snapshot->term;
    state.snapshot = *save.snapshot->data;
    state.members = save.snapshot->members;
  } else if (!save.append.empty()) {
    state.entries.resize(save.append.front().index - state.snapshot_index - 1);
  }
  state.entries.insert(state.entries.end(), save.append.begin(), save.append.end());
  return state;
}

// The states between two saves that a crash may leave: each record is whole or absent.
inline std::vector<State> states_within(const State& before, const Save& save) {
  std::vector<State> states{before};
  State state = before;
  if (save.term) {
    state.term = *save.term;
    states.push_back(state);
  }
  if (!save.append.empty() && save.append.front().index <= state.entries.size()) {
    state.entries.resize(save.append.front().index - 1);
    states.push_back(state);
  }
  for (const RaftEntry& e : save.append) {
    state.entries.push_back(e);
    states.push_back(state);
  }
  return states;
}

// A history with votes, appends, and a suffix that is replaced.
inline std::vector<Save> history() {
  return {
      {RaftTerm{1, 1}, {}},
      {{}, {entry(1, 1, 0)}},
      {{}, {entry(2, 1, 100), entry(3, 1, 7), entry(4, 1, 8)}},
      {RaftTerm{2, {}}, {entry(3, 2, 1500)}},
      {RaftTerm{2, 0}, {}},
      {{}, {entry(4, 2, 33), entry(5, 2, 1)}},
      {RaftTerm{5, 2}, {entry(2, 4, 40), entry(3, 5, 3000), entry(4, 5, 9)}},
  };
}

inline bool holds(const std::vector<State>& states, const State& state) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

// The last byte that is not zero, and one more.
inline std::size_t used_bytes(const Bytes& bytes) {
  const auto last = std::find_if(bytes.rbegin(), bytes.rend(), [](std::uint8_t b) { return b; });
  return static_cast<std::size_t>(bytes.rend() - last);
}

}  // namespace starling::raft_log_test
