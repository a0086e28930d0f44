#pragma once
// Frames of the bulk connections between the workers of one epoch: a fixed header and raw bytes.

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/ids.h"

namespace starling {

// Flag of kContribution, kTotal and kGather frames: the words that they are about go over the device
// transport, and the frame has what proves them.
inline constexpr std::uint8_t kOnDevice = 2;
// Flag of kContribution and kTotal frames: the sums are packed (collectives/pack.h).
inline constexpr std::uint8_t kPacked = 4;

enum class FrameKind : std::uint8_t {
  kContribution = 1,  // sums and lanes of one worker for segments that the receiver owns
  kSide,              // side-list entries, to the holders of their segments
  kTotal,             // sums and lanes over all members, owner -> replica
  kLedger,            // rows of the sender's share, to all members
  kVote,              // to all members
  kGather,            // working parameters and exponents of version v, owner -> all members
  kMove,              // state of segments with label v, source -> target
  kReady,             // outside the step loop: a joiner is ready to be switched to; tests, benches
  kLeft,              // last frame on a connection: the sender has left the epoch by a switch (R1)
  kTransport,         // outside the step loop: how a device transport comes about
  kAlive,             // keep-alive: the sender is there. For the other end of the connection alone
};

// LinkFault says how a connection ended, as one of its ends saw it.
enum class LinkFault : std::uint8_t {
  kEnded =
      0,    // by end of file or an error: perhaps because the peer stopped as it lost another peer
  kSilent,  // it stands, and nothing came over it for too long
  kUnreached,  // it never stood
};

struct FrameHeader {
  std::uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kReady;
  std::uint8_t flags = 0;
  // A hash of all fields before `checksum`, this one as 0. Without it a receiver would wait for the
  // bytes of a flipped length, from a peer that sends no more before it is answered.
  std::uint16_t check = 0;
  Version version = 0;
  SegmentId first = 0;  // segments that the payload is about, where it is about segments
  std::uint32_t count = 0;
  std::uint64_t length = 0;  // of the payload, bytes
  // Hash64 of the payload, seeded with the hash of the header before it; 0 where tags of the
  // connection cover both (collectives/tcp/handshake.h).
  std::uint64_t checksum = 0;

  static constexpr std::uint32_t kMagic = 0x32667253;  // "Srf2"
};
static_assert(sizeof(FrameHeader) == 40);

struct Frame {
  FrameHeader header;
  SharedBytes payload;  // never null in a received frame
};

}  // namespace starling
