#include "core/data/chunk_store.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>

#include "tests/core/has.h"
#include "tests/core/shards.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ChunkStore> store_of(const DataFolder& folder, const std::string& cache = "",
                                     std::uint64_t cache_bytes = 1 << 20) {
  return ChunkStore::open(folder.path(), cache, cache_bytes).value();
}

std::size_t files_in(const std::string& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("chunks: each is read with the token that follows it") {
  const DataFolder folder;
  write_shards(folder, 5, 100);
  const auto store = store_of(folder);
  for (const std::uint64_t i : {4u, 0u, 1u, 3u}) {
    const Bytes bytes = store->read(i).value();
    const TokenFile tokens{bytes, TokenWidth::k16};
    REQUIRE(tokens.size() == 101);
    for (std::uint64_t t = 0; t < 101; ++t) CHECK(tokens[t] == (i * 100 + t) % 251);
  }
}

TEST_CASE("chunks: damage is named by shard, chunk and bytes, and the other chunks are read") {
  const DataFolder folder;
  write_shards(folder, 5, 100);
  damage(folder.path() + "/shard-1.bin", 1024 + 250);
  const auto store = store_of(folder);
  const auto read = store->read(3);
  REQUIRE(!read);
  CHECK(read.error().code() == Code::kBadInput);
  CHECK(has(read.error().text(), "chunk 3, 202 bytes from byte 1224, is damaged"));
  CHECK(has(read.error().text(), "shard-1.bin"));
  CHECK(store->read(2));
}

TEST_CASE("chunks: a shard that is gone, or of another length, is named") {
  const DataFolder folder;
  write_shards(folder, 5, 100);
  fs::remove(folder.path() + "/shard-0.bin");
  fs::resize_file(folder.path() + "/shard-1.bin", 1024);
  const auto store = store_of(folder);
  CHECK(has(store->read(0).error().text(), "is gone, expected a shard that the index names"));
  CHECK(has(store->read(2).error().text(), "has 1024 bytes, expected 1426, as the index says"));
}

TEST_CASE("chunks: a token that the index does not allow reaches nobody") {
  const DataFolder folder;
  ShardIndex index = write_shards(folder, 3, 200);
  index.vocabulary = 250;
  folder.write(ShardIndex::kFile, index.format());
  CHECK(has(store_of(folder)->read(1).error().text(),
            "has the token 250, expected all below the 250 that the index says"));
}

TEST_CASE("chunks: a place without an index is none of shards") {
  const DataFolder folder;
  CHECK(has(ChunkStore::open(folder.path(), "", 0).error().text(), "has no index.json"));
}

TEST_CASE("cache: a chunk that it has is not read from the shard again") {
  const DataFolder folder;
  write_shards(folder, 5, 100);
  const std::string cache = folder.path() + "/cache";
  const Bytes first = store_of(folder, cache)->read(2).value();
  CHECK(files_in(cache) == 1);
  fs::remove(folder.path() + "/shard-1.bin");
  const auto store = store_of(folder, cache);
  CHECK(store->read(2).value() == first);
  CHECK(!store->read(3));
  CHECK(store->take_news().empty());
}

TEST_CASE("cache: a damaged file is told, removed, and read from the shard") {
  const DataFolder folder;
  write_shards(folder, 5, 100);
  const std::string cache = folder.path() + "/cache";
  const Bytes first = store_of(folder, cache)->read(2).value();
  const std::string file = fs::directory_iterator(cache)->path();
  for (const bool cut : {false, true}) {
    CAPTURE(cut);
    if (cut)
      fs::resize_file(file, 7);
    else
      damage(file, 30);
    const auto store = store_of(folder, cache);
    CHECK(store->read(2).value() == first);
    const auto news = store->take_news();
    REQUIRE(news.size() == 1);
    CHECK(has(news[0], "a cached chunk is damaged"));
    CHECK(has(news[0], file));
    CHECK(store->take_news().empty());
    CHECK(store_of(folder, cache)->read(2).value() == first);
  }
}

TEST_CASE("cache: it holds no more than its bound, and what was read last stays") {
  const DataFolder folder;
  write_shards(folder, 40, 100);
  const std::string cache = folder.path() + "/cache";
  const auto store = store_of(folder, cache, 10 * 202);
  for (std::uint64_t i = 0; i < 40; ++i) {
    REQUIRE(store->read(i));
    REQUIRE(store->read(0));  // in use all along
    CHECK(files_in(cache) <= 11);
  }
  fs::remove(folder.path() + "/shard-0.bin");
  CHECK(store_of(folder, cache)->read(0));
}

TEST_CASE("cache: files of others in its folder stay") {
  const DataFolder folder;
  write_shards(folder, 40, 100);
  const std::string cache = folder.path() + "/cache";
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(48);
  for (const char* name : {"cache/mine.chunk", "cache/download.part"})
    fs::last_write_time(folder.write(name, std::string(5000, 'x')), old);
  const auto store = store_of(folder, cache, 5 * 202);
  for (std::uint64_t i = 0; i < 40; ++i) REQUIRE(store->read(i));
  CHECK(fs::exists(cache + "/mine.chunk"));
  CHECK(fs::exists(cache + "/download.part"));
  CHECK(files_in(cache) <= 2 + 6);
}

TEST_CASE("chunks: a shard's header is compared when it is asked for") {
  const DataFolder folder;
  write_shards(folder, 5, 100);
  const auto store = store_of(folder);
  for (std::size_t i = 0; i < 3; ++i) CHECK(store->check_header(i));
  damage(folder.path() + "/shard-1.bin", 3);
  CHECK(has(store->check_header(1).error().text(), "is not that of its tokens"));
}

TEST_CASE("cache: one that cannot be written costs a line and nothing else") {
  const DataFolder folder;
  write_shards(folder, 5, 100);
  folder.write("file", "x");
  const auto store = store_of(folder, folder.path() + "/file/below");
  CHECK(store->read(0));
  CHECK(store->read(1));
  const auto news = store->take_news();
  REQUIRE(news.size() == 1);
  CHECK(has(news[0], "no chunk can be kept in the cache of data"));
}

}  // namespace starling
