#include "core/data/shard_index.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/core/has.h"

namespace starling {
namespace {

ShardIndex small_index() {
  ShardIndex index;
  index.width = TokenWidth::k16;
  index.vocabulary = 300;
  index.chunk_tokens = 8;
  index.add("shard-000000.bin", {{1, 2}, {3, 4}, {5, 6}});
  index.add("shard-000001.bin", {{7, 8}});
  return index;
}

std::string index_error_of(const std::string& text) {
  const auto index = ShardIndex::parse(text, "a/index.json");
  if (index) return "no error";
  CHECK(index.error().code() == Code::kBadInput);
  CHECK(has(index.error().text(), "a/index.json"));
  return index.error().text();
}

// The text of small_index() in which one thing is another.
template <class Change>
std::string index_with(const Change& change) {
  auto json = nlohmann::json::parse(small_index().format());
  change(json);
  return json.dump();
}

}  // namespace

TEST_CASE("shard index: what was written is read") {
  const ShardIndex index = small_index();
  CHECK(ShardIndex::parse(index.format(), "x").value() == index);
  ShardIndex masked = index;
  masked.width = TokenWidth::kMasked32;
  masked.sequence = 4;
  CHECK(ShardIndex::parse(masked.format(), "x").value() == masked);
}

TEST_CASE("shard index: a chunk lies behind the header, with the token that follows it") {
  const ShardIndex index = small_index();
  CHECK(index.chunks() == 4);
  CHECK(index.tokens() == 32);
  CHECK(index.shard_bytes(index.shards[0]) == 1024 + 25 * 2);
  const ChunkPlace third = index.place(2), fourth = index.place(3);
  CHECK(third.shard == 0);
  CHECK(third.begin == 1024 + 2 * 8 * 2);
  CHECK(third.size == 9 * 2);
  CHECK(third.digest == Digest{5, 6});
  CHECK(fourth.shard == 1);
  CHECK(fourth.begin == 1024);
  CHECK(fourth.digest == Digest{7, 8});
}

TEST_CASE("shard index: the identity is of what chunks hold, however shards are cut and called") {
  ShardIndex other;
  other.vocabulary = 300;
  other.chunk_tokens = 8;
  other.add("a", {{1, 2}});
  other.add("b", {{3, 4}, {5, 6}, {7, 8}});
  CHECK(other.identity() == small_index().identity());
  other.shards[1].chunks[1] = {5, 7};
  CHECK(other.identity() != small_index().identity());
  ShardIndex longer = small_index();
  longer.chunk_tokens = 9;
  CHECK(longer.identity() != small_index().identity());
}

TEST_CASE("shard index: what is wrong in one is said") {
  using Json = nlohmann::json;
  CHECK(has(index_error_of(""), "is not JSON"));
  CHECK(has(index_error_of("[]"), "\"format\" must be"));
  CHECK(has(index_error_of("{}"), "\"format\" must be"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["format"] = "other"; })),
            "\"format\" must be"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["version"] = 2; })), "version must be"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["bits"] = 24; })), "bits must be 16 or 32"));
  CHECK(has(index_error_of(index_with([](Json& j) { j.erase("loss_mask"); })), "loss_mask"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["loss_mask"] = true; })), "bits must be 32"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["sequence"] = 4; })),
            "sequence must be there"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["vocabulary"] = 65537; })),
            "vocabulary must be"));
  CHECK(
      has(index_error_of(index_with([](Json& j) { j["vocabulary"] = -1; })), "vocabulary must be"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["chunk_tokens"] = 0; })),
            "chunk_tokens must be"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["chunk_tokens"] = 7; })),
            "bytes of shard 0 must be"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["tokens"] = 31; })), "tokens must be 32"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["shards"] = Json::array(); })),
            "shards must be"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["shards"][1] = 3; })),
            "shard 1 must be an object"));
  for (const char* name : {"../x", "a/b", ".x", "", "a\nb"})
    CHECK(has(index_error_of(index_with([&](Json& j) { j["shards"][0]["name"] = name; })),
              "name of shard 0"));
  CHECK(
      has(index_error_of(index_with([](Json& j) { j["shards"][1]["name"] = "shard-000000.bin"; })),
          "twice"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["shards"][1]["chunks"] = Json::array(); })),
            "chunks of shard 1"));
  for (const char* digest :
       {"0", "0000000000000000000000000000000G", "00000000000000000000000000000000a"})
    CHECK(has(index_error_of(index_with([&](Json& j) { j["shards"][0]["chunks"][1] = digest; })),
              "32 hex digits"));
  CHECK(has(index_error_of(index_with([](Json& j) { j["shards"][0]["bytes"] = 5; })),
            "bytes of shard 0 must be 1074"));
  CHECK(has(index_error_of(std::string(2000, '[')), "deeper"));
}

}  // namespace starling
