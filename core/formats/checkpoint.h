#pragma once
// Checkpoints in a Storage: which there are, and what each consists of.
//
//   step-000000040/manifest.json     written last: without it there is no checkpoint
//   step-000000040/<shard files>     core/formats/shard.h; those the manifest does not name are left
//                                    over and mean nothing
//   owner.json                       the job that has the store (checkpoint_owner.h)
//
// A checkpoint is made by many processes and belongs to none: any number of workers can load it.
// The manifest names every shard with size and the digest of every segment; the sum of those is the
// digest of the version.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/formats/storage.h"
#include "core/wire/messages.h"

namespace starling {

struct Manifest {
  Checkpoint checkpoint;
  StepRecord record;             // of step version-1
  std::uint64_t state_hash = 0;  // of the job (core/job/job.h)
  std::string job;               // canonical text, for people
  std::uint32_t segments = 0;    // of the job
  std::uint32_t segment_blocks = 0;
  std::vector<Shard> shards;
  bool is_second_format = false;  // of format version 2: read, and no longer made
};

inline constexpr std::size_t kManifestBytesMax = std::size_t{64} << 20;

// JSON, the same bytes for the same manifest.
std::string format_manifest(const Manifest& manifest);
// Pure. Takes exactly what format_manifest() writes: every flipped bit is noticed.
// Errors: kCorrupt  anything else; kStale  another version of the format.
Result<Manifest> parse_manifest(std::string_view text);

// "step-000000040", in its store.
std::string checkpoint_folder(Version version);
// The reverse; none: no version's folder is named so.
std::optional<Version> checkpoint_version(const std::string& folder);
// The same below the store's place, for people.
std::string checkpoint_folder(const std::string& dir, Version version);

// Versions with a manifest, oldest first; whether it can be read is another question.
// Errors: kBadInput  the store cannot be read. None if it does not exist.
Result<std::vector<Version>> list_checkpoints(const Storage& storage);

// Whether an error says what a checkpoint holds, and not that it could not be looked at: only of a damaged one,
// or one of another format, may a reader go on to an older one.
bool is_damage(const Error& error);

// Errors: kBadInput  it cannot be read; kCorrupt, kStale  as parse_manifest, or it is in the folder
// of another version.
Result<Manifest> read_manifest(const Storage& storage, Version version);

// Publishes a checkpoint: it exists from here on for every reader. Its shards must be there: their
// sizes are looked at. Blocks for the disk. Errors: kBadInput  a shard is missing, a checkpoint of
// another job is there, or the manifest cannot be written.
Result<> publish_checkpoint(Storage& storage, const Manifest& manifest);

// Removes the manifests of complete checkpoints above version `above` whose manifest has one of these state hashes,
// as they were computed from other data than the job's. What is damaged stays. Errors: some of them could
// not be read or removed, and are still there.
Result<> withdraw_checkpoints(Storage& storage, Version above,
                              const std::vector<std::uint64_t>& mine);

// Marks complete checkpoints above version `from` whose manifest has one of these state hashes: they are
// in doubt from that step on, if not from an earlier one. The newest comes first. The manifest of one
// that cannot be marked is removed, and with it the checkpoint; what is damaged stays. Errors: some of them
// could not be read, marked or removed, and are there without their doubt.
Result<> doubt_checkpoints(Storage& storage, Version from, const std::vector<std::uint64_t>& mine);

// Removes the folders of versions below `below` that are not `kept`: those that are not complete,
// and complete ones while a newer one is kept, so that a process that is out of date does not
// remove what others have published since. A complete one whose manifest has none of the state
// hashes `mine`, or cannot be read, is not touched. What cannot be removed stays, and a store that is
// found away is asked for nothing more: each request would keep the end of a run waiting.
void remove_checkpoints(Storage& storage, Version below, const std::vector<Version>& kept,
                        const std::vector<std::uint64_t>& mine);

}  // namespace starling
