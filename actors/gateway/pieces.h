#pragma once
// Large messages go in pieces. libzmq takes a frame of any size that its bound
// allows before it knows who sends it, so the bound is small, and a larger message
// goes as several frames, one ZeroMQ message each. A receiver joins them only for
// a peer that has been let in, and no more of them than its quotas allow.
//
//   u32 magic   u32 place   u64 bytes of the whole message   up to kPieceBytes of it
//
// A message that fits a frame goes as it is.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/base/bytes.h"

namespace starling::actors {

inline constexpr std::size_t kPieceBytes = 16 * 1024;
// The largest frame that ZeroMQ must take: a piece, its head and the cipher's addition.
inline constexpr std::size_t kFrameBytes = kPieceBytes + 256;

// The number of frames that a message goes in, and the n-th of them.
std::size_t pieces_of(ByteView message);
Bytes piece_of(ByteView message, std::size_t n);

struct PieceLimits {
  std::size_t message_bytes = 0;       // of one message
  std::size_t key_bytes = 64u << 20;   // unfinished, from all connections of one key
  std::size_t all_bytes = 512u << 20;  // unfinished, from all keys
};

// Pieces holds the frames of messages that are not complete. Threads: one.
class Pieces {
 public:
  explicit Pieces(PieceLimits limits) : limits_(limits) {}

  enum class Outcome : std::uint8_t {
    kWhole,      // `message` is one, valid until the next call
    kMore,       // a piece; others follow
    kMisplaced,  // not the piece that was due: its message is forgotten
    kOversize,
  };
  struct Taken {
    Outcome outcome;
    ByteView message;
  };
  // Takes a frame from a connection of the owner of `key`. Above
  // a quota the message that has waited longest is dropped.
  Taken take(const std::string& connection, const std::string& key, ByteView frame);
  void forget(const std::string& connection);
  std::size_t bytes() const { return bytes_; }

 private:
  struct Unfinished {
    std::string key;
    std::uint64_t total = 0;
    std::uint32_t next = 0;  // place of the piece that is due
    Bytes bytes;
    std::size_t counted = 0;  // of them, in the quotas
    std::uint64_t heard = 0;  // rises with every piece
  };
  using Place = std::map<std::string, Unfinished>::iterator;
  void drop(Place place);
  void make_room(const std::string& key, std::size_t bytes, const std::string& except);

  const PieceLimits limits_;
  std::map<std::string, Unfinished> unfinished_;  // by connection
  std::map<std::string, std::size_t> bytes_of_;   // by key
  std::size_t bytes_ = 0;
  std::uint64_t clock_ = 0;
  Bytes whole_;
};

}  // namespace starling::actors
