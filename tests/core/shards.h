#pragma once
// Shards with an index in a folder, for tests.

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/data/shard_index.h"
#include "tests/core/data_folder.h"

namespace starling {

// Token i is i mod 251. `chunks` of `chunk_tokens` of 16 bits, two chunks a shard.
inline ShardIndex write_shards(const DataFolder& folder, std::uint64_t chunks,
                               std::uint32_t chunk_tokens) {
  ShardIndex index;
  index.vocabulary = 251;
  index.chunk_tokens = chunk_tokens;
  for (std::uint64_t first = 0; first < chunks; first += 2) {
    const std::uint64_t here = std::min<std::uint64_t>(2, chunks - first);
    const auto count = static_cast<std::uint32_t>(here * chunk_tokens + 1);
    const auto header = token_header(TokenWidth::k16, count, 0);
    std::string text(reinterpret_cast<const char*>(header.data()), sizeof header);
    for (std::uint64_t i = first * chunk_tokens; i < first * chunk_tokens + count; ++i) {
      const auto token = static_cast<std::uint16_t>(i % 251);
      text.append(reinterpret_cast<const char*>(&token), 2);
    }
    std::vector<Digest> digests;
    const ByteView bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    for (std::uint64_t c = 0; c < here; ++c)
      digests.push_back(
          hash128(bytes.subspan(kTokenHeader + c * chunk_tokens * 2, (chunk_tokens + 1) * 2)));
    const std::string name = "shard-" + std::to_string(index.shards.size()) + ".bin";
    folder.write(name, text);
    index.add(name, std::move(digests));
  }
  folder.write(ShardIndex::kFile, index.format());
  return index;
}

// Another byte in the place of one of a file.
inline void damage(const std::string& path, std::streamoff at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

}  // namespace starling
