#include "actors/worker/archive.h"

#include <caf/all.hpp>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "core/base/thread_name.h"
#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"
#include "core/formats/shard.h"
#include "kernels/optim/optimizer.h"

namespace starling::actors {
namespace {

class Archive : public caf::event_based_actor {
 public:
  Archive(caf::actor_config& config, std::shared_ptr<const TrainingSetup> setup, const JobId& run)
      : event_based_actor(config),
        setup_(std::move(setup)),
        run_(run),
        storage_(open_storage(setup_->job.checkpoint.dir)) {}

  caf::behavior make_behavior() override {
    name_thread("archive");
    return {
        [this](ShardOrder& order) -> ShardDone { return write(order); },
        [this](const LoadOrder& order) -> LoadDone { return load(order); },
    };
  }

 private:
  static constexpr int kAgain = 6;
  static constexpr std::chrono::seconds kPause{5};

  template <class Value>
  static bool away(const Result<Value>& done) {
    return !done && done.error().code() == Code::kUnavailable;
  }

  ShardDone write(ShardOrder& order) const {
    ShardDone answer;
    answer.written.version = order.version;
    answer.written.record = order.record;
    auto shard = write_if_ours(order);
    if (shard)
      answer.written.shard = std::move(shard).value();
    else
      answer.written.error = shard.error().text();
    answer.states = std::move(order.states);
    return answer;
  }

  Result<Shard> write_if_ours(const ShardOrder& order) const {
    STARLING_TRY(still_of_run(*storage_, run_));
    return write_shard(*storage_, checkpoint_folder(order.version), order.file, *setup_->layout,
                       order.states->all());
  }

  LoadDone load(const LoadOrder& order) const {
    LoadDone answer;
    answer.epoch = order.epoch;
    answer.version = order.version;
    auto loaded = read(order, answer.record);
    // A store that is away for a minute ends no worker; it is asked with the store's own patience each time.
    for (int again = 0; again < kAgain && away(loaded); ++again) {
      std::this_thread::sleep_for(kPause);
      loaded = read(order, answer.record);
    }
    if (loaded) {
      answer.states = std::move(loaded).value();
    } else {
      answer.error = loaded.error().text();
      const Code code = loaded.error().code();
      answer.here = code == Code::kBadInput || code == Code::kUnavailable;
    }
    return answer;
  }

  Result<std::shared_ptr<SegmentStates>> read(const LoadOrder& order, StepRecord& record) const {
    const Layout& layout = *setup_->layout;
    const bool second = kernels::moments(setup_->job.optimizer) == 2;
    STARLING_TRY(manifest, read_manifest(*storage_, order.version));
    if (manifest.segments != layout.segments() ||
        manifest.segment_blocks != layout.segment_blocks() ||
        !may_go_on_from(setup_->job, manifest.state_hash))
      return Error(Code::kCorrupt, "the checkpoint of step " + std::to_string(order.version) +
                                       " is of another job");
    std::map<SegmentId, std::pair<const Shard*, const SegmentDigest*>> places;
    for (const Shard& shard : manifest.shards)
      for (const SegmentDigest& s : shard.segments) places[s.segment] = {&shard, &s};
    ShardReader reader(*storage_, checkpoint_folder(order.version), layout, second);
    auto states = std::make_shared<SegmentStates>(layout, second);
    for (const SegmentId s : order.segments) {
      const auto& [shard, digest] = places.at(s);  // the manifest has every segment
      STARLING_TRY(reader.read(*shard, *digest, *states));
      ++*order.read;
    }
    record = manifest.record;
    return states;
  }

  const std::shared_ptr<const TrainingSetup> setup_;
  const JobId run_;
  const std::unique_ptr<Storage> storage_;
};

}  // namespace

caf::actor spawn_archive(caf::actor_system& system, std::shared_ptr<const TrainingSetup> setup,
                         const JobId& run) {
  return system.spawn<Archive, caf::detached>(std::move(setup), run);
}

}  // namespace starling::actors
