#include "collectives/frame_sender.h"

#include <cstddef>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace starling::collectives {

Bytes Payload::copy() const {
  Bytes bytes;
  bytes.reserve(size_);
  for (const Piece& piece : pieces_)
    bytes.insert(bytes.end(), piece.view.begin(), piece.view.end());
  return bytes;
}

void FrameSender::send_all(std::span<const Rank> to, FrameHeader header, const Payload& payload) {
  for (const Rank rank : to)
    if (rank != self()) send(rank, header, payload);
}

std::uint64_t checksum_seed(const FrameHeader& header) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&header);
  return hash64({bytes, offsetof(FrameHeader, checksum)});
}

std::uint16_t header_check(FrameHeader header) {
  header.check = 0;
  const std::uint64_t hash = checksum_seed(header);
  return static_cast<std::uint16_t>(hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48));
}

FrameHeader measured(FrameHeader header, const Payload& payload) {
  STARLING_CHECK(payload.size() <= kFrameBytesMax);
  header.magic = FrameHeader::kMagic;
  header.length = payload.size();
  header.check = header_check(header);
  return header;
}

FrameHeader checked(FrameHeader header, const Payload& payload) {
  header = measured(header, payload);
  Hash64 hash(checksum_seed(header));
  for (const auto& piece : payload.pieces()) hash.add(piece.view);
  header.checksum = hash.value();
  return header;
}

Frame make_frame(FrameHeader header, const Payload& payload) {
  return {checked(header, payload), share(payload.copy())};
}

bool holds(const Frame& frame) {
  return frame.header.magic == FrameHeader::kMagic &&
         frame.header.check == header_check(frame.header) &&
         frame.header.length == frame.payload->size() &&
         frame.header.checksum == hash64(*frame.payload, checksum_seed(frame.header));
}

std::vector<Rank> others(Rank self, std::uint32_t world) {
  std::vector<Rank> ranks;
  for (Rank r = 0; r < world; ++r)
    if (r != self) ranks.push_back(r);
  return ranks;
}

}  // namespace starling::collectives
