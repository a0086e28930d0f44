#include "actors/coordinator/leader_config.h"

#include <algorithm>

#include "core/job/layout.h"

namespace starling::actors {
namespace {

// Returns how many segments of state (weights and two moments) one source sends in
// one step: a sixteenth of all, about a tenth of what it sends in a step anyway. At
// least 4 MiB, as every step of moving costs; at most 32 MiB, which a frame holds.
std::uint32_t move_budget(const Layout& layout) {
  const std::uint64_t bytes = layout.segment_blocks() * (Layout::block_bytes(What::kWeights) +
                                                         2 * Layout::block_bytes(What::kMoment));
  const std::uint64_t wanted = layout.segments() / 16;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(
      1, std::clamp(wanted, (std::uint64_t{4} << 20) / bytes, (std::uint64_t{32} << 20) / bytes)));
}

}  // namespace

elastic::LeaderConfig leader_config(const CoordinatorOptions& options) {
  const Job& job = options.job;
  const Layout& layout = *options.layout;
  elastic::LeaderConfig config;
  config.micro_batches = job.micro_batches;
  config.steps = job.steps;
  config.segments = layout.segments();
  config.bucket_segments = layout.bucket(0).count;
  config.replicas = job.replicas;
  config.wanted_workers = options.wanted_workers;
  config.move_budget = move_budget(layout);
  config.elastic = job.elastic;
  config.checkpoint = job.checkpoint;
  config.report_deadline_ms = job.elastic.lease_ms;
  config.stop_on_nonfinite = job.on_nonfinite == NonFinite::kStop;
  config.pure_model = !kind_of(job.model).may_keep_state;
  config.job_hash = job_hash(job);
  config.job_text = format_job(job);
  for (SegmentId s = 0; s < layout.segments(); ++s)
    config.tensors.push_back(layout.tensors()[layout.tensor_of(layout.first_block(s))].spec.name);
  return config;
}

}  // namespace starling::actors
