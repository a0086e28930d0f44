#include "core/data/chunk_store.h"

#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/data_files.h"
#include "core/base/hash.h"

namespace starling {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kBetweenTries{1}, kUntilTold{5};
constexpr std::size_t kOpenMax = 256;  // shards

}  // namespace

ChunkStore::ChunkStore(std::unique_ptr<Storage> storage, ShardIndex index)
    : storage_(std::move(storage)), index_(std::move(index)) {}

Result<std::unique_ptr<ChunkStore>> ChunkStore::open(const std::string& place,
                                                     const std::string& cache,
                                                     std::uint64_t cache_bytes) {
  STARLING_TRY(named, storage_named(place));
  auto storage = open_storage(named);
  STARLING_TRY(text, storage->get(ShardIndex::kFile, ShardIndex::kBytesMax));
  if (!text)
    return bad_data("has no index.json, expected shards as starling shard makes them", place);
  STARLING_TRY(index, ShardIndex::parse(*text, storage->place(ShardIndex::kFile)));
  std::unique_ptr<ChunkStore> store(new ChunkStore(std::move(storage), std::move(index)));
  if (!cache.empty()) store->cache_.emplace(cache, cache_bytes);
  return store;
}

std::string ChunkStore::name(const ChunkPlace& place) const {
  return storage_->place(index_.shards[place.shard].name);
}

Result<std::shared_ptr<const StoredObject>> ChunkStore::shard(std::size_t i) {
  {
    const MutexLock lock(mutex_);
    if (const auto it = open_.find(i); it != open_.end()) return it->second;
  }
  const ShardIndex::Shard& shard = index_.shards[i];
  STARLING_TRY(opened, storage_->open(shard.name));
  const std::string where = storage_->place(shard.name);
  if (!opened) return bad_data("is gone, expected a shard that the index names", where);
  if (opened->size() != index_.shard_bytes(shard))
    return bad_data("has " + std::to_string(opened->size()) + " bytes, expected " +
                        std::to_string(index_.shard_bytes(shard)) + ", as the index says",
                    where);
  std::shared_ptr<const StoredObject> object = std::move(opened);
  const MutexLock lock(mutex_);
  if (open_.size() >= kOpenMax) open_.clear();
  open_.emplace(i, object);
  return object;
}

Result<> ChunkStore::look_at(std::size_t i) {
  STARLING_TRY(shard(i));
  return ok();
}

Result<> ChunkStore::check_header(std::size_t i) {
  STARLING_TRY(object, shard(i));
  std::array<std::uint32_t, kTokenHeader / 4> header{};
  STARLING_TRY(
      object->read_alone(0, {reinterpret_cast<std::uint8_t*>(header.data()), sizeof header}));
  const std::uint64_t tokens = (object->size() - kTokenHeader) / bytes_of(index_.width);
  if (header != token_header(index_.width, static_cast<std::uint32_t>(tokens), index_.sequence))
    return bad_data("the header of 1024 bytes is not that of its tokens",
                    storage_->place(index_.shards[i].name));
  return ok();
}

Result<Bytes> ChunkStore::fetch(const ChunkPlace& place) {
  STARLING_TRY(object, shard(place.shard));
  Bytes bytes(place.size);
  STARLING_TRY(object->read_alone(place.begin, bytes));
  return bytes;
}

Result<> ChunkStore::check(ByteView bytes, const ChunkPlace& place, std::uint64_t i) const {
  const std::string which = "chunk " + std::to_string(i) + ", " + std::to_string(place.size) +
                            " bytes from byte " + std::to_string(place.begin) + ", ";
  if (hash128(bytes) != place.digest)
    return bad_data(which + "is damaged: has not the digest that the index says", name(place));
  // An embedding has a row for each token below the vocabulary, and no more.
  const TokenFile tokens{bytes, index_.width};
  for (std::uint64_t t = 0; t < tokens.size(); ++t)
    if (tokens[t] >= index_.vocabulary)
      return bad_data(which + "has the token " + std::to_string(tokens[t]) +
                          ", expected all below the " + std::to_string(index_.vocabulary) +
                          " that the index says",
                      name(place));
  return ok();
}

Result<Bytes> ChunkStore::read(std::uint64_t i) {
  const ChunkPlace place = index_.place(i);
  if (cache_)
    if (auto bytes = cache_->get(place.digest, place.size)) {
      STARLING_TRY(check(*bytes, place, i));
      return std::move(*bytes);
    }
  const auto started = steady_clock::now();
  for (;;) {
    auto bytes = fetch(place);
    if (bytes) {
      STARLING_TRY(check(bytes.value(), place, i));
      if (cache_) cache_->put(place.digest, bytes.value());
      const MutexLock lock(mutex_);
      if (std::exchange(away_, false)) news_.push_back("the store of the data is back");
      return bytes;
    }
    const auto waited = steady_clock::now() - started;
    if (bytes.error().code() != Code::kUnavailable || waited > kPatience || stopped_) return bytes;
    {
      const MutexLock lock(mutex_);
      open_.erase(place.shard);  // it may have been replaced
      if (waited > kUntilTold && !std::exchange(away_, true))
        news_.push_back("waits for the store of the data: " + bytes.error().text());
    }
    for (auto until = steady_clock::now() + kBetweenTries;
         !stopped_ && steady_clock::now() < until;)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::vector<std::string> ChunkStore::take_news() {
  std::vector<std::string> news;
  {
    const MutexLock lock(mutex_);
    news = std::exchange(news_, {});
  }
  if (cache_)
    for (std::string& line : cache_->take_news()) news.push_back(std::move(line));
  return news;
}

}  // namespace starling
