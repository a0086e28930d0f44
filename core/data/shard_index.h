#pragma once
// index.json, which lies beside shards of tokens and says what is in them.
//
// A shard is a token file (core/data/token_file.h), so that a folder of shards is a folder of tokens, too. Its tokens lie in
// chunks of equal number; one token more, the first of the chunk behind it, ends a shard, since it is the last target of the
// last chunk. Of tokens in sequences (TokenFile::sequence) a chunk has whole ones, and nothing is behind the last.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/data/token_file.h"

namespace starling {

// The bytes of a chunk: where they lie, and what they hash to.
struct ChunkPlace {
  std::size_t shard = 0;
  std::uint64_t begin = 0, size = 0;  // bytes of the shard
  Digest digest{};
};

struct ShardIndex {
  struct Shard {
    std::string name;  // of an object beside the index
    std::vector<Digest>
        chunks;               // hash128() of each chunk's bytes, and of the token that follows it
    std::uint64_t first = 0;  // chunk, counted through the shards
    bool operator==(const Shard&) const = default;
  };
  static constexpr const char* kFile = "index.json";
  static constexpr std::uint64_t kChunksMax = 1u << 20;
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;  // of the file
  static constexpr std::uint32_t kChunkTokensMax = 1u << 26;

  TokenWidth width = TokenWidth::k16;
  std::uint32_t sequence = 0;      // TokenFile::sequence
  std::uint32_t vocabulary = 0;    // all tokens are below it
  std::uint32_t chunk_tokens = 0;  // without the one that follows
  std::vector<Shard> shards;
  bool operator==(const ShardIndex&) const = default;

  // A shard of these chunks, behind the others.
  void add(std::string name, std::vector<Digest> of_chunks);
  std::uint64_t chunks() const;
  std::uint64_t tokens() const { return chunks() * chunk_tokens; }
  std::uint64_t chunk_bytes() const;                    // with the token that follows it
  std::uint64_t shard_bytes(const Shard& shard) const;  // of the whole file
  std::uint32_t samples_of_chunk(std::uint32_t context) const { return chunk_tokens / context; }
  // Chunk i < chunks(), counted through the shards in their order.
  ChunkPlace place(std::uint64_t i) const;
  // Of what the chunks hold, however they are cut into shards.
  Digest identity() const;

  std::string format() const;
  // Errors: kBadInput  no such index; the text says what is wrong and names `where`.
  static Result<ShardIndex> parse(std::string_view text, const std::string& where);
};

}  // namespace starling
