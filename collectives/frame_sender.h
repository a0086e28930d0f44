#pragma once
// How frames leave a rank, and what they consist of.
//
// The collectives (Reduce, Gather, AllReduce) are pure frame handlers: they get frames with
// on_frame() and send through a FrameSender. In production that is tcp/mesh.h, in the simulator and
// in unit tests something in memory; the same code runs in both.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/wire/frame.h"

namespace starling::collectives {

// Frames are cut to about this size, or to one segment where that is larger, so that adding,
// forwarding and the network overlap. Measured with tools/bench/allreduce_bench.cpp.
inline constexpr std::size_t kFrameBytes = 256 * 1024;
// Most bytes that a receiver takes; a longer frame is an error of its connection.
inline constexpr std::size_t kFrameBytesMax = 64u << 20;

// The bytes of a frame as pieces, so that large arrays are sent from where they lie.
//
// Borrowed pieces must stay as they are until the frame has arrived or its sender has stopped.
// Accumulators and totals do: they change only after a vote that needs every such frame (R5, R7).
class Payload {
 public:
  struct Piece {
    ByteView view;
    std::shared_ptr<const void> owner;  // null: borrowed
  };

  Payload() = default;
  Payload(SharedBytes bytes) { append(std::move(bytes)); }  // NOLINT: a payload of one piece
  Payload& append(SharedBytes bytes) {
    const ByteView view = *bytes;
    return append({view, std::move(bytes)});
  }
  Payload& append_borrowed(ByteView view) { return append({view, nullptr}); }

  std::size_t size() const { return size_; }
  std::span<const Piece> pieces() const { return pieces_; }
  Bytes copy() const;

 private:
  Payload& append(Piece piece) {
    size_ += piece.view.size();
    if (!piece.view.empty()) pieces_.push_back(std::move(piece));
    return *this;
  }
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

// A FrameSender sends a rank's frames to the others of its epoch. Frames to one peer arrive in order,
// once, or the epoch breaks.
class FrameSender {
 public:
  virtual ~FrameSender() = default;
  virtual Rank self() const = 0;
  virtual std::uint32_t world() const = 0;
  // `to` is not self; the payload has at most kFrameBytesMax. Fills in the header's magic, length
  // and checks. Never blocks and never fails: a connection that cannot carry the frame breaks its
  // epoch.
  virtual void send(Rank to, FrameHeader header, Payload payload) = 0;
  // The same frame to several ranks; self among them is left out.
  virtual void send_all(std::span<const Rank> to, FrameHeader header, const Payload& payload);

  // Small frames sent from now on wait for flush(), so that what goes to one peer together takes
  // one call here and one there. In the thread that sends.
  virtual void hold() {}
  virtual void flush() {}
};

// The header with magic, check and length as the payload demands, for a connection with keys.
FrameHeader measured(FrameHeader header, const Payload& payload);
// The same with the payload's checksum, for one without.
FrameHeader checked(FrameHeader header, const Payload& payload);
// Seed of the payload's checksum: a hash of the header's fields before the checksum.
std::uint64_t checksum_seed(const FrameHeader& header);
// The value that `check` of a received header must have.
std::uint16_t header_check(FrameHeader header);
// A whole frame with a copy of the payload: what a sender in memory delivers.
Frame make_frame(FrameHeader header, const Payload& payload);
// Magic, check, length and checksum hold.
bool holds(const Frame& frame);

// All ranks but self.
std::vector<Rank> others(Rank self, std::uint32_t world);

}  // namespace starling::collectives
