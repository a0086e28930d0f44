#pragma once
// The 24 bytes before every Cap'n Proto message on the control plane, in the Raft log and in
// manifests: they tell our messages from noise before the Cap'n Proto reader, which throws, sees
// anything, and keep the reader from taking a damaged message for one of default values.
//
//   u32 magic   u16 version   u16 kind   u64 payload bytes   u64 checksum
//
// little-endian; checksum = hash64(payload, seed = hash64(the 16 bytes before it)). 24 bytes keep
// the payload aligned to Cap'n Proto's words when the message is. A guard against damage, not
// against attackers: CURVE keeps those out.

#include <cstdint>
#include <optional>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling {

enum class SealKind : std::uint16_t {
  kEnvelope = 1,
  kEntry = 2,
  kGroup = 3,
  kVersion = 4,  // says which version the sender speaks, and nothing else
};

inline constexpr std::size_t kSealBytes = 24;
inline constexpr std::uint16_t kSealVersion = 1;

Bytes seal(SealKind kind, ByteView payload);

// The version of the protocol that a message speaks. The magic and the version stay where they are
// in every version. nullopt: the message is not ours.
std::optional<std::uint16_t> seal_version(ByteView message);
// The message is a kVersion, which is not answered by another.
bool says_version(ByteView message);

// The payload, inside `message`. Errors: kCorrupt not ours, damaged, cut short or too large;
// kStale written by another version of the protocol.
Result<ByteView> unseal(SealKind kind, ByteView message);

}  // namespace starling
