#pragma once
// The numbers that name things, each with a type of its own where two stand side by side.

#include <array>
#include <compare>
#include <cstdint>
#include <string>

namespace starling {

using Rank = std::uint32_t;        // place in an epoch, 0 .. world size - 1
using Version = std::uint64_t;     // number of committed steps; step v takes version v to v+1
using MicroBatch = std::uint32_t;  // 0 .. M-1 within a step
using SegmentId = std::uint32_t;   // 0 .. segments-1, a function of the job only

inline constexpr std::uint32_t kBlock = 256;  // elements of a block: unit of the integer grid

// Consecutive segments [first, first + count).
struct SegmentRange {
  SegmentId first = 0;
  std::uint32_t count = 0;
  bool operator==(const SegmentRange&) const = default;
};

inline constexpr Version kNoVersion = ~Version{0};  // a worker that has no state yet
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

// One life of a worker: the counter comes from the group (0 before that), the nonce from the
// process. Two lives never share a nonce; equality is by nonce alone, so that a worker is the same
// before and after it was given its counter.
struct Incarnation {
  std::uint64_t counter = 0;
  std::uint64_t nonce = 0;
  bool operator==(const Incarnation& o) const { return nonce == o.nonce; }
  auto operator<=>(const Incarnation& o) const { return nonce <=> o.nonce; }
};

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
