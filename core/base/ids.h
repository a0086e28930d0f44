#pragma once
// The numbers that name things, each kind a type of its own.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/base/id.h"

namespace starling {

// Rank is the place in an epoch, 0 .. world size - 1.
using Rank = Id<struct RankTag, std::uint32_t>;
// Version is the number of committed steps; step v takes version v to v+1.
using Version = Id<struct VersionTag, std::uint64_t>;
// MicroBatch is 0 .. M-1 within a step.
using MicroBatch = Id<struct MicroBatchTag, std::uint32_t>;
// SegmentId is 0 .. segments-1, a function of the job only.
using SegmentId = Id<struct SegmentTag, std::uint32_t>;
// PartId is 0 .. parts-1 (core/job/layout.h), a function of the job only.
using PartId = Id<struct PartTag, std::uint32_t>;
// Nonce is a random number that one life of a worker draws at its start; 0: none.
using Nonce = Id<struct NonceTag, std::uint64_t>;

inline constexpr std::uint32_t kBlock = 256;  // elements of a block: unit of the integer grid

// Consecutive segments [first, first + count): `for (const SegmentId s : range)`.
struct SegmentRange {
  SegmentId first = 0;
  std::uint32_t count = 0;

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;  // `*it` is a value
    using value_type = SegmentId;
    using difference_type = std::ptrdiff_t;
    using pointer = const SegmentId*;
    using reference = SegmentId;

    constexpr Iterator() = default;
    explicit constexpr Iterator(SegmentId at) : at_(at) {}
    constexpr SegmentId operator*() const { return at_; }
    constexpr Iterator& operator++() {
      ++at_;
      return *this;
    }
    constexpr Iterator operator++(int) { return Iterator(at_++); }
    bool operator==(const Iterator&) const = default;

   private:
    SegmentId at_ = 0;
  };

  constexpr Iterator begin() const { return Iterator(first); }
  constexpr Iterator end() const { return Iterator(past()); }
  constexpr std::uint32_t size() const { return count; }
  constexpr bool empty() const { return count == 0; }
  constexpr SegmentId past() const { return first + count; }  // the one behind the last
  constexpr bool contains(SegmentId s) const { return s >= first && s - first < count; }
  bool operator==(const SegmentRange&) const = default;
};

// No version: that of a worker or a segment without state, of an epoch that was not entered yet, of
// a record of no step.
inline constexpr Version kNoVersion = ~Version{0};
// The rank of a worker that is no member of the plan.
inline constexpr Rank kNoRank = ~Rank{0};

// An epoch's name: the term of the leader that made its plan, and a counter in that term.
// Ordered; {0, 0} is "none" and below every real one.
struct EpochId {
  std::uint64_t term = 0;
  std::uint64_t counter = 0;
  auto operator<=>(const EpochId&) const = default;
  explicit operator bool() const { return term != 0 || counter != 0; }
  EpochId next() const { return {term, counter + 1}; }
};

// An Incarnation is one life of a worker: the counter comes from the group (0 before that), the
// nonce from the process. Two lives never share a nonce; equality is by nonce alone, so that a
// worker is the same before and after it was given its counter.
struct Incarnation {
  std::uint64_t counter = 0;
  Nonce nonce;
  bool operator==(const Incarnation& o) const { return nonce == o.nonce; }
  auto operator<=>(const Incarnation& o) const { return nonce <=> o.nonce; }
};

// Per segment, the ranks that hold it, owner first; never none, below the world size, none twice.
using Holders = std::shared_ptr<const std::vector<std::vector<Rank>>>;

using JobId = std::array<std::uint8_t, 16>;  // random, made when the job is created
using EpochKey = std::array<std::uint8_t, 32>;
using Digest = std::array<std::uint64_t, 2>;  // a 128-bit sum, low word first

std::string to_string(const EpochId& id);       // "3.17"
std::string to_string(const Incarnation& who);  // "5-1f2e3d4c"
std::string to_string(const Digest& digest);    // 32 hex digits
std::string to_string(const JobId& job);        // 32 hex digits

// 128-bit addition modulo 2^128: order does not matter, so neither does placement.
Digest operator+(const Digest& a, const Digest& b);

}  // namespace starling
