#include "core/data/held_out.h"

#include <algorithm>
#include <numeric>

#include "core/base/step_record.h"
#include "core/data/dataset.h"

namespace starling {

Result<std::shared_ptr<const HeldOut>> HeldOut::open(const Job& job) {
  Job other = job;
  other.data.path = job.evaluate.path;
  other.data.order = DataOrder::kGlobal;
  if (auto* python = std::get_if<PythonSpec>(&other.model)) python->samples = job.evaluate.samples;
  STARLING_TRY(data, Dataset::open(other));
  std::shared_ptr<HeldOut> held_out(new HeldOut);
  held_out->data_ = std::move(data);
  held_out->seed_ = job.seed;
  held_out->every_ = job.evaluate.every;
  held_out->micro_batches_ = job.micro_batches;
  held_out->first_draw_ = job.micro_batches * std::max(job.local.steps, 1u);  // of passes
  held_out->sequences_ = pass_sequences(job);
  const std::uint64_t samples = held_out->data_->samples();
  const std::uint64_t whole = samples / held_out->sequences_;
  const std::uint64_t wanted = job.evaluate.batches
                                   ? job.evaluate.batches
                                   : std::clamp<std::uint64_t>(whole, 1, kHeldOutMax);
  if (wanted > whole)
    return Error(Code::kBadInput,
                 std::to_string(wanted) + (wanted == 1 ? " batch" : " batches") + " of " +
                     std::to_string(held_out->sequences_) +
                     " samples must be held out, there are " + std::to_string(samples) +
                     " samples" + (job.evaluate.path.empty() ? "" : " in " + job.evaluate.path) +
                     "; [evaluate]");
  held_out->batches_ = static_cast<std::uint32_t>(wanted);
  return std::shared_ptr<const HeldOut>(std::move(held_out));
}

const Digest& HeldOut::identity() const {
  return data_->identity();
}

Result<Batch> HeldOut::batch(Version version, std::uint32_t i) const {
  std::vector<std::uint64_t> samples(sequences_);
  std::iota(samples.begin(), samples.end(), std::uint64_t{i} * sequences_);
  STARLING_TRY(batch, data_->fill(samples));
  batch.held_out = true;
  batch.draw = {seed_, version, MicroBatch(first_draw_ + i)};  // no pass draws the same
  return std::move(batch);
}

std::pair<std::uint32_t, std::uint32_t> HeldOut::of(MicroBatch m) const {
  const auto up_to = [this](std::uint64_t n) {
    return static_cast<std::uint32_t>(n * batches_ / micro_batches_);
  };
  return {up_to(m.value()), up_to(m.value() + std::uint64_t{1})};
}

}  // namespace starling
