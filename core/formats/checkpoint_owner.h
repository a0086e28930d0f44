#pragma once
// The owner of a store's checkpoints: owner.json, made before the first shard is written. Another job's
// store is refused, and nothing of another job's is written over or removed.
//
// Of one job's runs the one that took the store last owns it, and of that run's leaders the one of the
// highest term: an older one that goes on late finds that out and writes and removes nothing any more.
// A run that ends before it has published a checkpoint gives the store back to the one before it; one that
// was killed loses it to that one where its process can be seen to be over.
// A store without conditional writes cannot do better than to look first, so what an older one was
// about to put when it was stopped may still come: a manifest of the same bits.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/formats/checkpoint.h"
#include "core/formats/storage.h"

namespace starling {

struct CheckpointOwner {
  // state_hash() of the job (core/job/job.h), behind those of the jobs that it has gone on from.
  std::vector<std::uint64_t> state_hashes;
  std::string job;         // canonical text, for people
  JobId run{};             // that took the store last; zeros: of a build that did not write it
  std::uint64_t term = 0;  // the highest of that run's leaders that wrote or removed something
  std::string process;     // that lives as long as the run (process_identity()); empty: none
  // The owners before this one, the last one last, until this run has published a checkpoint. They
  // have none before them here.
  std::vector<CheckpointOwner> before;

  // Whether a checkpoint of a job with this hash is the owner's.
  bool has(std::uint64_t state_hash) const;
  bool operator==(const CheckpointOwner&) const = default;
};

// A CheckpointWriter says for which job, run and term somebody writes checkpoints or removes them.
struct CheckpointWriter {
  std::uint64_t state_hash = 0;
  std::uint64_t accepts = 0;  // the hash of a job that this one goes on from; 0: none
  std::string job;
  // The coordinators' keys are its identity (tools/starling/group.h): all processes of a run know
  // it, also those that begin again.
  JobId run{};
  std::uint64_t term = ~std::uint64_t{0};  // a leader's; the highest: no coordinator is left
  std::string process{};                   // CheckpointOwner::process
};

// JSON, the same bytes for the same owner.
std::string format_checkpoint_owner(const CheckpointOwner& owner);
// Pure. Errors: kCorrupt  it is not what format_checkpoint_owner() writes.
Result<CheckpointOwner> parse_checkpoint_owner(std::string_view text);

// None if the store has no owner, or half of one: its writer was killed. Waits some seconds for one
// that is being written.
// Errors: kBadInput  it cannot be read, or not understood; the text names the file.
Result<std::optional<CheckpointOwner>> read_checkpoint_owner(const Storage& storage);

// Looks whether that job may take the store. Errors: as take_checkpoints() gives them.
Result<> may_take_checkpoints(const Storage& storage, const CheckpointWriter& writer);

// Makes that job and run the store's owner, also if an earlier run of the job has it: a run does so
// once, when it begins. If that job or the one that it accepts is an owner already, it becomes the
// last. Of several jobs that do so at once with a store that has no owner, one succeeds.
// Errors: kBadInput  it is another job's, or the file cannot be read or written.
Result<> take_checkpoints(Storage& storage, const CheckpointWriter& writer);

// Takes the store only if it has no owner; else looks whether it is still this run's and no leader of a
// higher term has written there, and notes the term.
// Errors: kStale  it is not;  kBadInput  as take_checkpoints().
Result<> hold_checkpoints(Storage& storage, const CheckpointWriter& writer);

// Looks whether no other run has taken the store. Errors: kStale  one has.
Result<> still_of_run(Storage& storage, const JobId& run);

// Whether another run has taken the store from this one and has published no checkpoint yet.
bool newer_run_is_idle(const Storage& storage, const JobId& run);

// publish_checkpoint() as the one who holds the store, which no run before gets back from then on.
// Errors: as hold_checkpoints() and publish_checkpoint().
Result<> publish_own_checkpoint(Storage& storage, const CheckpointWriter& writer,
                                const Manifest& manifest);

// withdraw_checkpoints(), if the writer would hold the store; else nothing.
Result<> withdraw_own_checkpoints(Storage& storage, const CheckpointWriter& writer, Version above);

// doubt_checkpoints(), if the writer would hold the store; else nothing.
Result<> doubt_own_checkpoints(Storage& storage, const CheckpointWriter& writer, Version from);

// remove_checkpoints(), if the writer would hold the store; else nothing.
void remove_own_checkpoints(Storage& storage, const CheckpointWriter& writer, Version below,
                            const std::vector<Version>& kept);

// Ends this run's claim. If it has published nothing, the run before it is the owner again, or, where
// there is neither one nor a checkpoint, the store is free again. What cannot be written stays.
void give_up_checkpoints(Storage& storage, const JobId& run);

}  // namespace starling
