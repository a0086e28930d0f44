#pragma once
// EventMemory is what a writer of events remembers of events that it has been told, so that none is
// written twice and two stories of one step are noticed. Bounded: of steps a hash each, of the last
// quarter of a million of them.
//
// Threads: none; a value that belongs to the writer.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/ids.h"
#include "core/observe/event.h"

namespace starling {

class EventMemory {
 public:
  static constexpr std::size_t kRecords = std::size_t{1} << 18;  // 4 MiB
  static constexpr std::size_t kLedgers = std::size_t{1} << 16;  // 3 MiB
  static constexpr std::size_t kWords = std::size_t{1} << 16;    // of other kinds; about 3 MiB
  static constexpr std::size_t kEarlyRows = std::size_t{1} << 18;

  enum class Told : std::uint8_t {
    kFirst,  // not told before: write it
    kAgain,  // the same as before, or too long ago to know
    kOther,  // of one step another story
    kEarly,  // of a step that was done again, before it is told why: kept until then
  };

  // The first event of each worker's change and each epoch counts, and of a restart that of each
  // lost epoch; a good end is kOther while a ledger is early. Of all other kinds each is kFirst.
  Told take(const Event& event);
  // Gives the early ledgers, which may be told now, after a restart that is kFirst.
  std::vector<event::LedgerPassed> take_early();
  const std::vector<event::LedgerPassed>& early() const { return early_; }
  // Remembers a text. False: that text was here before.
  bool first(const std::string& text);

 private:
  struct Record {
    Version version = kNoVersion;
    std::uint64_t hash = 0;
  };
  struct Passed {
    Version version = kNoVersion;
    std::uint64_t hash = 0;
    EpochId epoch;
    std::size_t restarts = 0;  // before that epoch
  };
  struct Restart {
    EpochId lost;
    Version version = 0;
  };

  static Told known(std::vector<Record>& ring, Version version, std::uint64_t hash);
  Told ledger(const event::LedgerPassed& ledger);
  Told restart(const event::Restarted& restart);
  std::size_t restarts_before(const EpochId& epoch) const;
  bool done_again(Version version, std::size_t after) const;

  std::vector<Record> records_;      // of version v at v % kRecords
  std::vector<Record> evaluations_;  // likewise
  std::vector<Passed> ledgers_;      // of version v at v % kLedgers: the newest try
  std::vector<Restart> restarts_;    // by epoch
  // A coordinator may tell of a step that was done again before another one tells why.
  std::vector<event::LedgerPassed> early_;
  std::size_t early_rows_ = 0;
  std::unordered_set<std::uint64_t> words_;
  std::deque<std::uint64_t> order_;  // of words_
};

}  // namespace starling
