#include "core/formats/raft_log.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "core/base/hash.h"
#include "tests/core/raft_log_disk.h"

namespace starling {
namespace {

using namespace raft_log_test;

// Goal: what was saved is there after a restart, whatever was cut before (B1).
// Method: a history, opened anew after each save, compared with the model.
TEST_CASE("raft log: what was saved comes back after each restart") {
  Disk disk;
  State model;
  for (const Save& save : history()) {
    {
      auto log = open(disk);
      REQUIRE(log);
      CHECK(log.value().save(save.term, save.append));
    }
    model = after(model, save);
    disk.crash(/*seed=*/1);  // nothing is unsynced
    auto log = open(disk);
    REQUIRE(log);
    CHECK(log.value().last_index() == model.entries.size());
    CHECK(state_of(log.value()) == model);
    CHECK(log.value().cut_bytes() == 0);
  }
}

// Goal: one sync for a save of several parts, none for an empty one, none for room in between.
TEST_CASE("raft log: a save costs one sync") {
  Disk disk;
  auto log = open(disk);
  REQUIRE(log);
  const auto before = disk.syncs;
  CHECK(log.value().save({}, {}));
  CHECK(disk.syncs == before);
  const std::vector<RaftEntry> entries{entry(1, 1, 0), entry(2, 1, 500000)};
  CHECK(log.value().save(RaftTerm{1, 0}, entries));
  CHECK(disk.syncs == before + 1);
}

// Goal: a torn end is cut and what is before it stays (W1). Method: every prefix of the file.
TEST_CASE("raft log: every prefix of the file opens to a prefix of its history") {
  Disk whole;
  State model;
  std::vector<State> states{model};
  {
    auto log = open(whole);
    REQUIRE(log);
    for (const Save& save : history()) {
      CHECK(log.value().save(save.term, save.append));
      for (const State& state : states_within(model, save)) states.push_back(state);
      model = after(model, save);
    }
  }
  const auto used = used_bytes(whole.durable);
  std::size_t position = 0;
  for (std::size_t bytes = 64; bytes <= used; ++bytes) {
    Disk disk;
    disk.durable = disk.visible =
        Bytes(whole.durable.begin(), whole.durable.begin() + static_cast<std::ptrdiff_t>(bytes));
    auto log = open(disk);
    REQUIRE(log);
    const State state = state_of(log.value());
    // States only move forward with the length of the prefix.
    while (position < states.size() && states[position] != state) ++position;
    REQUIRE_MESSAGE(position < states.size(), "prefix of " << bytes << " bytes");
    if (bytes % 16 > 0 && bytes + 16 < used) continue;
    // And the log goes on from there.
    const auto next = entry(state.entries.size() + 1, 9, 20);
    REQUIRE(log.value().save(RaftTerm{9, 0}, std::vector{next}));
    auto again = open(disk);
    REQUIRE(again);
    CHECK(again.value().last_index() == next.index);
    CHECK(again.value().cut_bytes() == 0);
  }
  CHECK(states[position] == model);
}

// Goal: damage is never taken for data, nor for a torn end where it is certain (W2, W8). Method:
// each byte is flipped; all of it is noticed, and only the last save may be cut.
TEST_CASE("raft log: a flipped byte is refused, or is in the last save and cut with it") {
  Disk whole;
  std::size_t last_save = 0;
  State model;
  State before;
  std::vector<State> allowed;
  {
    auto log = open(whole);
    REQUIRE(log);
    for (const Save& save : history()) {
      last_save = std::max<std::size_t>(used_bytes(whole.durable), 64);
      before = model;
      CHECK(log.value().save(save.term, save.append));
      allowed = states_within(before, save);
      model = after(model, save);
    }
  }
  const auto used = used_bytes(whole.durable);
  std::size_t refused_in_last_save = 0;
  for (std::size_t at = 0; at < used; ++at) {
    for (const int bit : {0, 7}) {
      Disk disk;
      disk.visible = Bytes(whole.durable.begin(),
                           whole.durable.begin() + static_cast<std::ptrdiff_t>(used + 600));
      disk.visible[at] = static_cast<std::uint8_t>(disk.visible[at] ^ (1 << bit));
      const Bytes damaged = disk.visible;
      auto log = open(disk);
      CAPTURE(at);
      if (!log) {
        CHECK(log.error().code() == Code::kCorrupt);
        CHECK(log.error().text().find("raft.log, offset ") != std::string::npos);
        CHECK(disk.visible == damaged);
        refused_in_last_save += at >= last_save;
        continue;
      }
      REQUIRE(at >= last_save);
      const State state = state_of(log.value());
      CHECK(state != model);
      CHECK(holds(allowed, state));
      CHECK(log.value().cut_bytes() > 0);
    }
  }
  // Even there nearly all of it is told from a torn write, which leaves zeros.
  CHECK(refused_in_last_save > (used - last_save) * 2 * 9 / 10);
}

// Goal: a crash in the middle of a save leaves the old state, the new one, or one between; whatever
// subset of sectors arrived (W1, W15, B4). Method: random histories, crashes at each save.
TEST_CASE("raft log: a crash in a save leaves a prefix of its records") {
  int cut = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Disk disk;
    State model;
    for (std::uint64_t step = 0; step < 8; ++step) {
      const auto draw = [&](std::uint64_t k, std::uint64_t n) {
        return mix64(mix64(seed, step), k) % n;
      };
      auto log = open(disk);
      REQUIRE_MESSAGE(
          log, "seed " << seed << " step " << step << ": " << (log ? "" : log.error().text()));
      const State state = state_of(log.value());
      cut += log.value().cut_bytes() > 0;
      REQUIRE_MESSAGE(state == model, "seed " << seed << " step " << step);
      Save save;
      save.term = RaftTerm{model.term.term + 1 + draw(0, 2), 1};
      const auto first = model.entries.size() + 1 - draw(1, model.entries.size() + 1) / 2;
      for (auto k = draw(2, 5); k > 0; --k) {
        save.append.push_back(
            entry(first + save.append.size(), save.term->term, draw(k + 3, 1800)));
      }
      // The sync fails, then the machine stops.
      const bool dies = draw(20, 3) != 0;
      if (dies) disk.calls_until_failure = static_cast<int>(draw(21, 2));
      const auto saved = log.value().save(save.term, save.append);
      if (saved) {
        model = after(model, save);
        continue;
      }
      CHECK(!log.value().save({}, {}));  // and it says so from then on
      ++refused;
      disk.crash(mix64(seed, step));
      auto survivor = open(disk);
      REQUIRE_MESSAGE(survivor, "seed " << seed << " step " << step << ": "
                                        << (survivor ? "" : survivor.error().text()));
      cut += survivor.value().cut_bytes() > 0;
      const State found = state_of(survivor.value());
      REQUIRE(holds(states_within(model, save), found));
      model = found;
    }
  }
  CHECK(cut > 50);
  CHECK(refused > 250);
}

// Goal: hostile bytes are an error or a log, never a crash. Method: random changes of several
// kinds.
TEST_CASE("raft log: random damage never crashes") {
  Disk whole;
  {
    auto log = open(whole);
    REQUIRE(log);
    for (const Save& save : history()) CHECK(log.value().save(save.term, save.append));
  }
  const auto used = used_bytes(whole.durable);
  int opened = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    Disk disk;
    disk.visible = Bytes(whole.durable.begin(),
                         whole.durable.begin() + static_cast<std::ptrdiff_t>(used + 600));
    std::uint64_t draws = 0;
    const auto draw = [&](std::uint64_t n) { return mix64(seed, draws++) % n; };
    for (auto n = 1 + draw(4); n > 0; --n) {
      const auto at = draw(disk.visible.size());
      const auto length = std::min<std::size_t>(draw(200), disk.visible.size() - at);
      const auto from = draw(disk.visible.size() - length + 1);
      const auto target = disk.visible.begin() + static_cast<std::ptrdiff_t>(at);
      switch (draw(4)) {
        case 0:
          disk.visible[at] = static_cast<std::uint8_t>(draw(256));
          break;
        case 1:
          std::fill_n(target, length, std::uint8_t{0});
          break;
        case 2: {  // a misdirected write
          const Bytes copy(disk.visible.begin() + static_cast<std::ptrdiff_t>(from),
                           disk.visible.begin() + static_cast<std::ptrdiff_t>(from + length));
          std::copy(copy.begin(), copy.end(), target);
          break;
        }
        default:
          disk.visible.resize(std::max<std::size_t>(at, 1));
      }
    }
    auto log = open(disk);
    if (!log) {
      CHECK(!log.error().text().empty());
      continue;
    }
    ++opened;
    CHECK(log.value().last_index() <= 5);
  }
  CHECK(opened > 10);
}

// Goal: a log is opened by its owner only (W12), and says which it is.
TEST_CASE("raft log: another job's or member's log is refused") {
  Disk disk;
  REQUIRE(open(disk));
  JobId other = kJob;
  other[15] = 99;
  const auto foreign = open(disk, other);
  REQUIRE(!foreign);
  CHECK(foreign.error().code() == Code::kBadInput);
  CHECK(foreign.error().text().find(to_string(kJob)) != std::string::npos);
  const auto swapped = open(disk, kJob, 2);
  REQUIRE(!swapped);
  CHECK(swapped.error().code() == Code::kBadInput);
  CHECK(open(disk));
}

// Goal: after a failed sync, what is in memory but not on the disk is made durable on the next
// open, before anybody relies on it (reliability rule: no page that only looks clean).
TEST_CASE("raft log: what is read back after a failed sync is durable once opened") {
  Disk disk;
  {
    auto log = open(disk);
    REQUIRE(log);
    disk.calls_until_failure = 1;  // the write goes through, the sync does not
    CHECK(!log.value().save(RaftTerm{3, 1}, {}));
  }
  disk.calls_until_failure = -1;
  disk.unsynced.clear();  // pages count as clean: a later sync alone would not write them
  const Bytes stale = disk.durable;
  auto log = open(disk);
  REQUIRE(log);
  CHECK(log.value().term() == RaftTerm{3, 1});
  CHECK(disk.durable != stale);
  CHECK(disk.unsynced.empty());
}

// Goal: a hole in what was synced is corruption although it looks like a torn write (W2). Method:
// each word, and each stretch of a sector, before the last save is zeroed.
TEST_CASE("raft log: zeros in what was synced are refused, not cut") {
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
  for (const std::size_t length : {std::size_t{56}, std::size_t{512}}) {
    for (std::size_t at = 64; at + length < last_save; at += 8) {
      Disk disk;
      disk.visible = Bytes(whole.durable.begin(), whole.durable.begin() + 8192);
      std::fill_n(disk.visible.begin() + static_cast<std::ptrdiff_t>(at), length, std::uint8_t{0});
      const auto log = open(disk);
      CAPTURE(at);
      REQUIRE(!log);
      CHECK(log.error().code() == Code::kCorrupt);
    }
  }
}

// Goal: a record that is whole, in its place, but of another past is not followed (W8). Method: two
// logs that differ in their second save; the end of one behind the beginning of the other.
TEST_CASE("raft log: a record of another history is refused") {
  Disk disks[2];
  std::size_t seam = 0;
  for (std::uint64_t k = 0; k < 2; ++k) {
    auto log = open(disks[k]);
    REQUIRE(log);
    CHECK(log.value().save(RaftTerm{k + 1, 1}, {}));
    seam = used_bytes(disks[k].durable);
    CHECK(log.value().save(RaftTerm{3, 0}, {}));
  }
  std::copy(disks[1].durable.begin() + static_cast<std::ptrdiff_t>(seam), disks[1].durable.end(),
            disks[0].durable.begin() + static_cast<std::ptrdiff_t>(seam));
  disks[0].visible = disks[0].durable;
  const auto log = open(disks[0]);
  REQUIRE(!log);
  CHECK(log.error().code() == Code::kCorrupt);
}

}  // namespace
}  // namespace starling
