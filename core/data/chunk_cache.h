#pragma once
// Chunks on a local disk, for stores that are far away.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"

namespace starling {

// A folder of chunks, each a file whose name is its digest; several processes may have one folder. It never holds more
// than its bound for long: the files that were not read for longest go. A cache that cannot be read or written is no
// error: the chunk comes from the store then, and a line says so once.
// Threads: any.
class ChunkCache {
 public:
  // Touches nothing before a chunk is asked for.
  ChunkCache(std::string folder, std::uint64_t bytes_max);

  // Returns the chunk, if it is there and has this size and digest; a file with others is removed, and told.
  std::optional<Bytes> get(const Digest& digest, std::uint64_t size);
  void put(const Digest& digest, ByteView bytes);
  // Lines for people since the last call.
  std::vector<std::string> take_news();

 private:
  std::string path(const Digest& digest) const;
  void make_room() STARLING_REQUIRES(mutex_);

  const std::string folder_;
  const std::uint64_t bytes_max_;
  Mutex mutex_;
  std::uint64_t written_ STARLING_GUARDED_BY(mutex_) = 0;  // bytes, since the folder's were counted
  bool counted_ STARLING_GUARDED_BY(mutex_) = false;
  bool refused_ STARLING_GUARDED_BY(mutex_) = false;       // a write failed, which was told
  std::uint64_t damaged_ STARLING_GUARDED_BY(mutex_) = 0;  // chunks, not told yet
  std::string first_damaged_ STARLING_GUARDED_BY(mutex_);  // file
  std::vector<std::string> news_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling
