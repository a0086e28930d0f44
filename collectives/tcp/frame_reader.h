#pragma once
// The receiving half of a bulk connection: bytes from a socket become verified frames.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/tcp/buffer_pool.h"
#include "collectives/tcp/handshake.h"
#include "core/base/hash.h"
#include "core/wire/frame.h"

namespace starling::collectives {

// Threads: one.
class FrameReader {
 public:
  enum class End { kNothingMore, kMore, kEndOfFile, kError };
  using Deliver = std::function<bool(Frame)>;  // false: stop reading

  FrameReader(std::shared_ptr<BufferPool> pool, std::size_t frame_bytes_max);

  // The connection stands, and its frames are sealed with `keys`. Without open(): kPlain.
  void open(const ConnectionKeys& keys);

  // Reads what the socket has, up to a bound that keeps one peer from starving the others, and
  // delivers the frames that are complete. kMore: there may be more. kError: see error().
  End read(int socket, const Deliver& deliver);
  const std::string& error() const { return error_; }

 private:
  // Payload bytes go straight into their buffer; what lies behind, the next header at least, comes
  // with the same call into the stage.
  long read_once(int socket);
  bool take_staged(const Deliver& deliver);
  void take(ByteView from, std::uint8_t* to);
  std::size_t header_bytes() const;
  bool read_header();
  bool begin_frame();
  bool end_payload();
  AeadTag staged_tag();
  bool end_frame(const Deliver& deliver);
  bool refuse(std::string why);

  const std::shared_ptr<BufferPool> pool_;
  const std::size_t frame_bytes_max_;
  Bytes stage_;
  std::size_t begin_ = 0, end_ = 0;  // of what is staged
  std::size_t asked_ = 0;            // bytes, of the last read
  FrameHeader header_;
  std::shared_ptr<Bytes> payload_;  // null: between frames
  std::size_t filled_ = 0;
  Hash64 hash_;  // kPlain
  FrameSeal seal_ = FrameSeal::kPlain;
  std::optional<Aead> aead_;  // else
  std::string error_;
};

}  // namespace starling::collectives
