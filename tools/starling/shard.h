#pragma once
// `starling shard` makes shards with an index of token files.

#include <cstdint>
#include <string>
#include <vector>

#include "tools/starling/options.h"

namespace starling::tools {

struct ShardCommand {
  std::string tokens;                   // a token file, a folder, a pattern
  std::string to;                       // a new folder, or s3://BUCKET/PREFIX
  std::vector<std::string> extensions;  // of a folder
  std::uint64_t chunk_bytes = 0;        // of a chunk, about; 0: by the size of all
  std::uint64_t shard_bytes = std::uint64_t{64} << 20;
};

void add_shard(CLI::App& app, ShardCommand& command);
// Returns the exit code.
int shard(const ShardCommand& command);

// Whether a path is that of an index of shards, by its name.
bool is_shard_index(const std::string& path);
// Reads every chunk that an index names. Returns the exit code: 2 where one is not what the index says.
int check_shards(const std::string& index);

}  // namespace starling::tools
