#pragma once
// What a file of a Raft log consists of (raft_log.h). Only for raft_log.cpp.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/ids.h"

namespace starling::raft_log_records {

inline constexpr std::uint64_t kLogMagic = 0x31676f4c74666152;  // "RaftLog1"
inline constexpr std::uint32_t kLogFormat = 2;
inline constexpr std::uint64_t kSector = 512;  // a disk writes these whole, or a prefix of them
inline constexpr std::uint64_t kPreallocated = 256 * 1024;
inline constexpr std::uint8_t kPad = 0xa5;  // not zero: the last word of a record is never zero

struct FileHeader {
  std::uint64_t magic = kLogMagic;
  std::uint32_t format = kLogFormat;
  std::uint32_t member = 0;
  JobId job{};
  std::uint64_t generation = 0;
  std::uint64_t reserved[2] = {};
  std::uint64_t checksum = 0;
};
static_assert(sizeof(FileHeader) == 64);

enum Kind : std::uint32_t {
  kTerm = 1,  // term; index = vote + 1, 0 = none
  kEntry = 2,
  kEnd = 3,       // the log ends at `index`
  kLost = 4,      // what stood in a log before this file is not known
  kFloor = 5,     // it is known again: went to `index`, `term` at most
  kSnapshot = 6,  // the state after `index`, `term`; only the first such record of a file
  kMembers = 7,   // the group: an entry, or directly after a snapshot, at its index, that there
};

struct Mark {
  std::uint64_t generation = 0;
  std::uint64_t end = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Mark) == 24);

struct RecordHeader {
  std::uint32_t length = 0;
  std::uint32_t kind = 0;
  std::uint64_t index = 0;
  std::uint64_t term = 0;
  std::uint64_t synced = 0;
  std::uint64_t chain = 0;
  std::uint64_t payload_checksum = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(RecordHeader) == 56);

template <class T>
T read_at(ByteView bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// The checksum covers everything before it, as the last field. Never 0: zeros are no record.
template <class T>
std::uint64_t header_checksum(const T& header, std::uint64_t seed) {
  const std::span<const T> one(&header, 1);
  return std::max<std::uint64_t>(hash64(as_bytes(one).first(sizeof(T) - 8), seed), 1);
}

inline std::uint64_t padded(std::uint64_t length) {
  return length == 0 ? 0 : (length + 8) / 8 * 8;
}

inline bool all_zero(ByteView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

}  // namespace starling::raft_log_records
