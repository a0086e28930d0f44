#pragma once
// `starling shard` makes shards with an index of token files.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/job/job.h"
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

// Where the shards lie that a path names: that of their index, or a folder which has one. Empty: it names none.
std::string shards_at(const std::string& path);
// Reads every chunk that the index there names. Returns the exit code: 2 where one is not what the index says.
int check_shards(const std::string& place);
// Looks at each shard of a job's folder, and reads none. Errors: kBadInput  one is gone, or of another length.
Result<> check_shards_of(const Job& job);

}  // namespace starling::tools
