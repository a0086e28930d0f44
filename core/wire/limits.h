#pragma once
// Limits of control messages and their parts. The decoder refuses what is above a limit, so that
// the memory of a receiver is bounded whatever arrives.
// Changing a limit changes the protocol.

#include <cstddef>
#include <cstdint>

namespace starling::limits {

inline constexpr std::size_t kMessageBytes = 64u << 20;  // one sealed envelope or entry
inline constexpr std::size_t kMembers = 4096;            // ranks of an epoch; fits 16 bits
inline constexpr std::size_t kSegments = 65536;
inline constexpr std::size_t kHolders = std::size_t{1} << 20;  // of all segments together
inline constexpr std::size_t kMoves = std::size_t{1} << 18;
inline constexpr std::size_t kMicroBatches = std::size_t{1} << 20;
inline constexpr std::size_t kRaftEntries = 4096;            // in one message
inline constexpr std::size_t kRaftEntryBytes = 32u << 20;    // one of them
inline constexpr std::size_t kRaftMessageBytes = 48u << 20;  // the data of all of them
inline constexpr std::size_t kVoters = 15;                   // of them at a time
inline constexpr std::size_t kLives = 4 * kMembers;          // that the group remembers
inline constexpr std::size_t kCheckpoints = 4096;            // that a job goes on from
inline constexpr std::uint32_t kAttempts = 1u << 16;         // to make one epoch's device transport
inline constexpr std::size_t kMissed = 4;                    // ranks that a heartbeat names
inline constexpr std::size_t kDifferences = 16;              // in a heartbeat or a vote
inline constexpr std::size_t kRateChanges = 256;             // of the peak rate, in a run
inline constexpr std::size_t kSeats = 64;                    // places of coordinators
inline constexpr std::size_t kAddressBytes = 288;            // any that parse_address() takes
inline constexpr std::size_t kNameBytes = 256;               // names, hosts, failure domains
inline constexpr std::size_t kLineBytes = 4096;              // reasons, causes, fingerprints' text
inline constexpr std::size_t kTokenBytes = 15u << 10;  // of an identity; its message is one frame
inline constexpr std::size_t kJobTextBytes = 1u << 20;

}  // namespace starling::limits
