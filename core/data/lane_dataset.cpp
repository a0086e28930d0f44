#include "core/data/lane_dataset.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/data_files.h"
#include "core/data/token_source.h"
#include "core/data/token_window.h"
#include "core/data/window_keeper.h"

namespace starling {
namespace {

class LaneDataset : public Dataset {
 public:
  LaneDataset(std::unique_ptr<ChunkStore> store, const Lanes& lanes, std::uint32_t context,
              const Job& job)
      : keeper_(std::make_unique<WindowKeeper>(std::move(store), lanes,
                                               job.steps * job.micro_batch_sequences)),
        context_(context),
        sequences_(job.micro_batch_sequences),
        of_chunk_(index().samples_of_chunk(context)) {
    samples_ = index().chunks() * of_chunk_;
    identity_ = index().identity();
  }

  std::string remark() const override {
    const std::uint32_t left = index().chunk_tokens % context_;
    if (left == 0) return {};
    return std::to_string(left) + " tokens of each chunk's " +
           std::to_string(index().chunk_tokens) + " are left out, as a context of " +
           std::to_string(context_) + " does not divide it";
  }
  std::optional<LaneFacts> lanes() const override {
    return LaneFacts{of_chunk_, 2 * Lanes::kWindow * index().chunk_bytes()};
  }
  bool waits() const override { return keeper_->waits(); }
  std::vector<std::string> take_news() const override { return keeper_->store().take_news(); }
  std::uint64_t sample_of(std::uint64_t step, MicroBatch m, std::uint32_t sequence) const override {
    const LanePlace place = keeper_->lanes().place_of(m, step * sequences_ + sequence);
    return place.chunk * of_chunk_ + place.sample;
  }

 private:
  const ShardIndex& index() const { return keeper_->store().index(); }

  void expect(std::uint64_t step, MicroBatch m) const override {
    keeper_->expect(step, m, step * sequences_, sequences_);
  }
  Result<> append(std::uint64_t i, Batch& batch) const override {
    STARLING_TRY(bytes, keeper_->get(i / of_chunk_));
    const std::uint64_t first = i % of_chunk_ * context_;
    const std::size_t width = bytes_of(index().width);
    const std::size_t count = std::min<std::size_t>(context_ + 1, bytes->size() / width - first);
    append_window({ByteView(*bytes).subspan(first * width, count * width), index().width}, context_,
                  batch);
    return ok();
  }
  // The index has a digest of each chunk, which is compared when it is read.
  std::optional<Digest> content(const std::function<bool()>&) const override { return identity(); }

  const std::unique_ptr<WindowKeeper> keeper_;
  const std::uint32_t context_, sequences_, of_chunk_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> open_lanes(const Job& job, const ModelInput& input) {
  const DataSpec& spec = job.data;
  STARLING_TRY(store, ChunkStore::open(spec.path, spec.cache, spec.cache_bytes));
  const ShardIndex& index = store->index();
  const auto context = static_cast<std::uint32_t>(input.positions);
  if (index.vocabulary > input.vocabulary)
    return bad_data("tokens must be below the vocabulary's " + std::to_string(input.vocabulary) +
                        ", the index says below " + std::to_string(index.vocabulary),
                    spec.path);
  if (index.sequence != 0 && index.sequence != context)
    return bad_data("has " + sequences_text(index.sequence) +
                        ", as --pad-to or --pack has said; the context must be as long, is " +
                        std::to_string(context),
                    spec.path);
  if (index.samples_of_chunk(context) == 0)
    return bad_data("has chunks of " + std::to_string(index.chunk_tokens) +
                        " tokens, expected at least the context's " + std::to_string(context) +
                        "; starling shard --chunk-bytes makes larger ones",
                    spec.path);
  if (index.chunks() < job.micro_batches)
    return bad_data("has " + std::to_string(index.chunks()) +
                        " chunks, expected at least one for "
                        "each of the job's " +
                        std::to_string(job.micro_batches) +
                        " micro-batches; starling shard --chunk-bytes makes smaller ones",
                    spec.path);
  const Lanes lanes(job.seed, index.chunks(), index.samples_of_chunk(context), job.micro_batches);
  return std::unique_ptr<Dataset>(
      std::make_unique<LaneDataset>(std::move(store), lanes, context, job));
}

}  // namespace starling
