#include "actors/worker/archive.h"

#include <filesystem>
#include <map>
#include <utility>

#include "core/formats/checkpoint.h"
#include "core/formats/shard.h"
#include "kernels/optim/optimizer.h"

namespace starling::actors {
namespace {

class Archive : public caf::event_based_actor {
 public:
  Archive(caf::actor_config& config, std::shared_ptr<const TrainingSetup> setup)
      : event_based_actor(config), setup_(std::move(setup)) {}

  caf::behavior make_behavior() override {
    return {
        [this](ShardOrder& order) -> ShardDone { return write(order); },
        [this](const LoadOrder& order) -> LoadDone { return load(order); },
    };
  }

 private:
  const std::string& dir() const { return setup_->job.checkpoint.dir; }

  ShardDone write(ShardOrder& order) const {
    ShardDone answer;
    answer.written.version = order.version;
    answer.written.record = order.record;
    const std::string folder = checkpoint_folder(dir(), order.version);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      answer.written.error = "cannot make " + folder + ": " + error.message();
    } else if (auto shard = write_shard(folder, order.file, *setup_->layout, order.states->all())) {
      answer.written.shard = std::move(shard).value();
    } else {
      answer.written.error = shard.error().text();
    }
    answer.states = std::move(order.states);
    return answer;
  }

  LoadDone load(const LoadOrder& order) const {
    LoadDone answer;
    answer.epoch = order.epoch;
    answer.version = order.version;
    auto loaded = read(order, answer.record);
    if (loaded) {
      answer.states = std::move(loaded).value();
    } else {
      answer.error = loaded.error().text();
      answer.here = loaded.error().code() == Code::kBadInput;
    }
    return answer;
  }

  Result<std::shared_ptr<SegmentStates>> read(const LoadOrder& order, StepRecord& record) const {
    const Layout& layout = *setup_->layout;
    const bool second = kernels::moments(setup_->job.optimizer) == 2;
    STARLING_TRY(manifest, read_manifest(dir(), order.version));
    if (manifest.segments != layout.segments() ||
        manifest.segment_blocks != layout.segment_blocks() ||
        !may_go_on_from(setup_->job, manifest.state_hash))
      return Error(Code::kCorrupt, "the checkpoint of step " + std::to_string(order.version) +
                                       " is of another job");
    std::map<SegmentId, std::pair<const Shard*, const SegmentDigest*>> places;
    for (const Shard& shard : manifest.shards)
      for (const SegmentDigest& s : shard.segments) places[s.segment] = {&shard, &s};
    ShardReader reader(checkpoint_folder(dir(), order.version), layout, second);
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
};

}  // namespace

caf::actor spawn_archive(caf::actor_system& system, std::shared_ptr<const TrainingSetup> setup) {
  return system.spawn<Archive, caf::detached>(std::move(setup));
}

}  // namespace starling::actors
