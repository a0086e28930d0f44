#pragma once
// The owner of a store's checkpoints: owner.json, made before the first shard is written. Another job's
// store is refused, and nothing of another job's is written over or removed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/formats/storage.h"

namespace starling {

struct CheckpointOwner {
  // state_hash() of the job (core/job/job.h), behind those of the jobs that it has gone on from.
  std::vector<std::uint64_t> state_hashes;
  std::string job;  // canonical text, for people

  // Whether a checkpoint of a job with this hash is the owner's.
  bool has(std::uint64_t state_hash) const;
  bool operator==(const CheckpointOwner&) const = default;
};

// JSON, the same bytes for the same owner.
std::string format_checkpoint_owner(const CheckpointOwner& owner);
// Pure. Errors: kCorrupt  it is not what format_checkpoint_owner() writes.
Result<CheckpointOwner> parse_checkpoint_owner(std::string_view text);

// None if the store has no owner. Waits some seconds for one that is being written.
// Errors: kBadInput  it cannot be read, or not understood; the text names the file.
Result<std::optional<CheckpointOwner>> read_checkpoint_owner(const Storage& storage);

// Makes that job the store's owner if it has none: of several that do so at once one succeeds.
// `accepts`: the hash of a job that this one goes on from; 0: none. If that job or this one is an
// owner already, this one becomes the last.
// Value: whether the file was made by this call.
// Errors: kBadInput  it is another job's, or the file cannot be read or written.
Result<bool> claim_checkpoints(Storage& storage, std::uint64_t state_hash, std::uint64_t accepts,
                               const std::string& job);

// withdraw_checkpoints(), if the job with that hash is the last owner of the store; else nothing.
void withdraw_own_checkpoints(Storage& storage, std::uint64_t state_hash, Version above);

// doubt_checkpoints(), if the job with that hash is the last owner of the store; else nothing.
void doubt_own_checkpoints(Storage& storage, std::uint64_t state_hash, Version from);

// remove_checkpoints(), if the job with that hash is the last owner of the store; else nothing.
void remove_own_checkpoints(Storage& storage, std::uint64_t state_hash, Version below,
                            const std::vector<Version>& kept);

// Removes the owner: the store is free again. What cannot be removed stays.
void give_up_checkpoints(Storage& storage);

}  // namespace starling
