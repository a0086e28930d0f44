#pragma once
// Chunks of shards that lie in a folder or a bucket, read one by one and checked.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/data/chunk_cache.h"
#include "core/data/shard_index.h"
#include "core/formats/storage.h"

namespace starling {

// Threads: any; several chunks are read at once.
class ChunkStore {
 public:
  static constexpr std::chrono::minutes kPatience{10};

  // `place`: a folder or s3://BUCKET/PREFIX, which has an index.json. `cache`: a folder on a local disk; empty: none.
  // Errors: kBadInput  there is no index, or no valid one; kUnavailable  the store is away.
  static Result<std::unique_ptr<ChunkStore>> open(const std::string& place,
                                                  const std::string& cache,
                                                  std::uint64_t cache_bytes);

  const ShardIndex& index() const { return index_; }
  // Whether a shard is there and as long as the index says. Errors: kBadInput  it is not; kUnavailable.
  Result<> look_at(std::size_t i);
  // Whether a shard begins as a token file of its tokens. Errors: those of look_at().
  Result<> check_header(std::size_t i);
  // Reads chunk i, with the token that follows it. Blocks for the store: one that is away is asked again for ten minutes,
  // or until stop(). Errors: kBadInput  it is not what the index says; kUnavailable  the store is still away.
  Result<Bytes> read(std::uint64_t i);
  // Ends all waiting for the store, now and later.
  void stop() { stopped_ = true; }
  // Lines for people since the last call: damage in the cache, a store that is away.
  std::vector<std::string> take_news();

 private:
  ChunkStore(std::unique_ptr<Storage> storage, ShardIndex index);
  Result<std::shared_ptr<const StoredObject>> shard(std::size_t i);
  Result<Bytes> fetch(const ChunkPlace& place);
  Result<> check(ByteView bytes, const ChunkPlace& place, std::uint64_t i) const;
  std::string name(const ChunkPlace& place) const;

  const std::unique_ptr<Storage> storage_;
  const ShardIndex index_;
  std::optional<ChunkCache> cache_;
  std::atomic<bool> stopped_ = false;
  Mutex mutex_;
  std::map<std::size_t, std::shared_ptr<const StoredObject>> open_ STARLING_GUARDED_BY(mutex_);
  bool away_ STARLING_GUARDED_BY(mutex_) = false;  // told
  std::vector<std::string> news_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling
