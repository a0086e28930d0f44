// What a log keeps when it is cut, when its last record goes, and when it was lost as a whole.

#include <doctest/doctest.h>

#include "core/wire/raft_members.h"
#include "tests/core/raft_log_disk.h"

namespace starling {
namespace {

using namespace raft_log_test;

// Goal: a snapshot stands for what was before it, whatever came in between, and the file is short.
// Method: as above, with appends, cuts and votes around two snapshots; the second with entries that
// stay.
TEST_CASE("raft log: a snapshot takes the place of the entries up to it") {
  const std::vector<Save> saves = {
      {RaftTerm{2, 1}, {entry(1, 1, 3000), entry(2, 1, 3000), entry(3, 2, 3000)}},
      {{}, {}, snapshot(3, 2, 100)},
      {{}, {entry(4, 2, 10), entry(5, 2, 20)}},
      {RaftTerm{4, 0}, {entry(5, 4, 30)}},
      {{}, {entry(5, 4, 30), entry(6, 4, 5)}, snapshot(4, 2, 1)},
      {RaftTerm{5, {}}, {entry(6, 5, 9)}},
  };
  Disk disk;
  State model;
  for (const Save& save : saves) {
    {
      auto log = open(disk);
      REQUIRE(log);
      CHECK(log.value().save(save.term, save.append, save.snapshot));
      if (save.snapshot) CHECK(log.value().bytes() < 1000);
    }
    model = after(model, save);
    const Bytes mark = disk.mark;
    disk.crash(/*seed=*/1);
    disk.mark = mark;
    auto log = open(disk);
    REQUIRE_MESSAGE(log, (log ? "" : log.error().text()));
    CHECK(log.value().last_index() == model.last_index());
    CHECK(state_of(log.value()) == model);
  }
}

// Goal: the group comes back as it was, as an entry, as one that was cut, and with a snapshot.
TEST_CASE("raft log: the members of the group come back") {
  const auto group = [](std::uint64_t index, std::uint64_t term, RaftMembers members) {
    return RaftEntry{index, term, {}, std::move(members)};
  };
  const RaftMembers three{{0, 1, 2}, 3, 1, 4}, four{{0, 1, 2, 3}, {}, 1, 4},
      left{{0, 2, 3}, {}, {}, 4};
  RaftLogSnapshot changed = snapshot(3, 2, 100);
  changed.members = left;
  const std::vector<Save> saves = {
      {RaftTerm{2, 1}, {entry(1, 1, 30), group(2, 2, three), group(3, 2, four)}},
      {{}, {group(3, 2, left)}},
      {{}, {group(4, 2, three)}, changed},
      {{}, {entry(5, 2, 9)}},
      {{}, {group(6, 2, left)}, snapshot(5, 2, 10)},
  };
  Disk disk;
  State model;
  for (const Save& save : saves) {
    {
      auto log = open(disk);
      REQUIRE(log);
      CHECK(log.value().save(save.term, save.append, save.snapshot));
    }
    model = after(model, save);
    auto log = open(disk);
    REQUIRE_MESSAGE(log, (log ? "" : log.error().text()));
    CHECK(state_of(log.value()) == model);
  }
}

TEST_CASE("raft log: bytes that are no group are refused") {
  const RaftMembers group{{0, 2}, 3, 2, 4};
  const Bytes whole = encode_members(group);
  CHECK(decode_members(whole).value() == group);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const auto cut = decode_members(ByteView(whole).first(bytes));
    if (cut) CHECK(is_group(cut.value()));
  }
  for (const auto& [word, value] : {std::pair(0, 3), {0, 65}, {1, 3}, {2, 2}, {3, 2}, {3, 7}}) {
    Bytes bad = whole;
    bad[static_cast<std::size_t>(4 * word)] = static_cast<std::uint8_t>(value);
    CHECK(!decode_members(bad));
  }
}

// Goal: what was lost with the last record is not taken for a record that was never completed.
// Method: zeros from any point of the last save on; the mark is there, or went with the machine.
TEST_CASE("raft log: a last record that was durable once is refused when it is gone") {
  Disk whole;
  std::size_t last_save = 0;
  {
    auto log = open(whole);
    REQUIRE(log);
    for (const Save& save : history()) {
      last_save = std::max<std::size_t>(used_bytes(whole.durable), 64);
      CHECK(log.value().save(save.term, save.append));
    }
  }
  for (std::size_t at = last_save; at + 8 < used_bytes(whole.durable); at += 8) {
    for (const bool marked : {true, false}) {
      Disk disk = whole;
      if (!marked) disk.mark.clear();
      std::fill(disk.visible.begin() + static_cast<std::ptrdiff_t>(at), disk.visible.end(),
                std::uint8_t{0});
      const auto log = open(disk);
      CAPTURE(at);
      CHECK(log.has_value() == !marked);
      if (!log) CHECK(log.error().code() == Code::kCorrupt);
    }
  }
  // A log that was put back from a copy that is older than its last snapshot.
  Disk disk = whole;
  {
    auto log = open(disk);
    REQUIRE(log);
    CHECK(log.value().save({}, {}, snapshot(4, 5, 10)));
  }
  disk.visible = disk.durable = whole.durable;
  const auto old = open(disk);
  REQUIRE(!old);
  CHECK(old.error().text().find("older copy") != std::string::npos);
}

// Goal: a first start is said, not guessed. Method: every pair of what is said and what is there.
TEST_CASE("raft log: an empty folder is a first life only if that is said") {
  const auto with = [](Disk& disk, RaftLog::Life life) {
    return RaftLog::open_on(std::make_unique<MemoryFile>(disk), kJob, 1, life);
  };
  for (const std::size_t zeros : {0, 4096}) {
    Disk disk;
    disk.visible = disk.durable = Bytes(zeros);
    auto lost = with(disk, RaftLog::Life::kLater);
    REQUIRE(lost);
    CHECK(lost.value().term().lost);
    // A restart knows it still, until it is known what was promised; then that, and nothing else.
    auto again = with(disk, RaftLog::Life::kLater);
    REQUIRE(again);
    CHECK(again.value().term().lost);
    const RaftTerm known{7, 1, false, 6, 40};
    CHECK(again.value().save(known, {}));
    auto after_it = with(disk, RaftLog::Life::kLater);
    REQUIRE(after_it);
    CHECK(after_it.value().term() == known);
    CHECK(after_it.value().save({}, std::vector{entry(1, 6, 5)}));
    CHECK(after_it.value().save(known, {}, snapshot(1, 6, 10)));
    auto later = with(disk, RaftLog::Life::kLater);
    REQUIRE(later);
    CHECK(later.value().term() == known);
    const auto refused = with(disk, RaftLog::Life::kFirst);
    REQUIRE(!refused);
    CHECK(refused.error().code() == Code::kBadInput);
  }
  Disk disk;
  REQUIRE(with(disk, RaftLog::Life::kLater));  // forgotten to say
  auto said = with(disk, RaftLog::Life::kFirst);
  REQUIRE(said);
  CHECK(!said.value().term().lost);
  auto kept = with(disk, RaftLog::Life::kLater);
  REQUIRE(kept);
  CHECK(!kept.value().term().lost);
}

}  // namespace
}  // namespace starling
