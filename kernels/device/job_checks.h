#pragma once
// check() holds a job to what its struct says (jobs.h), where a queue takes it: a wrong address or
// length of our own is otherwise found by nothing but a digest, steps later. A job without
// segments or blocks does nothing and may lack the rest.

#include <cstdint>

#include "core/base/check.h"
#include "core/job/layout.h"
#include "kernels/device/jobs.h"

namespace starling::kernels {

namespace job_checks {

// Elements begin at a multiple of 16 bytes.
inline bool aligned(const void* at) {
  return at != nullptr && reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
}
inline void check(const Segments& segments, std::uint32_t first_block = 0) {
  STARLING_CHECK(segments.list != nullptr);
  for (std::uint32_t i = 0; i < segments.count; ++i) {
    STARLING_CHECK(segments.list[i].count > 0);
    STARLING_CHECK(segments.list[i].first >= first_block);
  }
}
inline void check(const WideMeans& wide) {
  STARLING_CHECK(wide.count == 0 || (wide.blocks != nullptr && wide.largest != nullptr));
  STARLING_CHECK(wide.count == 0 || aligned(wide.means));
}
inline void check(const float* const (&arrays)[3]) {
  for (const float* array : arrays) STARLING_CHECK(array == nullptr || aligned(array));
}

}  // namespace job_checks

inline void check(const AddJob& job) {
  if (job.segments.count == 0) return;
  job_checks::check(job.segments, job.first_block);
  STARLING_CHECK(job.scale >= 0 && job.scale <= 126);
  STARLING_CHECK(job.limit > 0 && (!job.by_dice || job.limit <= 1 << 14));
  STARLING_CHECK(job_checks::aligned(job.gradient) && job.exponents != nullptr);
  STARLING_CHECK(job.sums == nullptr || job_checks::aligned(job.sums));
  STARLING_CHECK(job.weighted != nullptr && job.outside != nullptr && job.broken != nullptr);
}
inline void check(const GatherJob& job) {
  STARLING_CHECK(job.count == 0 || job.blocks != nullptr);
  STARLING_CHECK(job_checks::aligned(job.gradient));
  STARLING_CHECK(job.count == 0 || job_checks::aligned(job.values));
}
inline void check(const WeighJob& job) {
  if (job.segments.count == 0) return;
  job_checks::check(job.segments);
  STARLING_CHECK(job_checks::aligned(job.sums) && job.weighted != nullptr);
}
inline void check(const SumJob& job) {
  STARLING_CHECK(job.elements % kBlock == 0);
  STARLING_CHECK(job.elements == 0 || (job_checks::aligned(job.sums) &&
                                       job_checks::aligned(job.a) && job_checks::aligned(job.b)));
}
inline void check(const WideJob& job) {
  if (job.count == 0) return;
  STARLING_CHECK(job.micro_batches > 0);
  STARLING_CHECK(job_checks::aligned(job.totals) && job_checks::aligned(job.means));
  STARLING_CHECK(job.exponents != nullptr && job.blocks != nullptr && job.ends != nullptr);
  STARLING_CHECK(job.entries == nullptr || job_checks::aligned(job.entries));  // there may be none
  STARLING_CHECK(job.largest != nullptr);
}
inline void check(const SquaresJob& job) {
  if (job.segments.count == 0) return;
  job_checks::check(job.segments);
  job_checks::check(job.wide);
  STARLING_CHECK(job.micro_batches > 0);
  STARLING_CHECK(job_checks::aligned(job.totals) && job.exponents != nullptr);
  STARLING_CHECK(job.used != nullptr && job.bins != nullptr && job.weighted != nullptr);
}
inline void check(const ApplyJob& job) {
  if (job.segments.count == 0) return;
  job_checks::check(job.segments);
  job_checks::check(job.wide);
  STARLING_CHECK(job.micro_batches > 0);
  STARLING_CHECK(job_checks::aligned(job.totals) && job.exponents != nullptr);
  STARLING_CHECK(job.used != nullptr && job.groups != nullptr && job.checksums != nullptr);
  STARLING_CHECK(job_checks::aligned(job.weights) && job_checks::aligned(job.first));
  STARLING_CHECK(job.second == nullptr || job_checks::aligned(job.second));
  STARLING_CHECK(job.limit_bits > 0 && job.headroom_bits >= 0);
}
inline void check(const PublishJob& job) {
  if (job.segments.count == 0) return;
  job_checks::check(job.segments);
  STARLING_CHECK(job_checks::aligned(job.weights) && job_checks::aligned(job.parameters));
  STARLING_CHECK(job.held_exponents != nullptr && job.exponents != nullptr);
  STARLING_CHECK(job.checksums != nullptr);
}
inline void check(const MultipleJob& job) {
  STARLING_CHECK(job.elements % kBlock == 0);
  STARLING_CHECK(job.elements == 0 ||
                 (job_checks::aligned(job.from) && job_checks::aligned(job.to)));
}
inline void check(const DifferenceJob& job) {
  STARLING_CHECK(job.elements % kBlock == 0);
  STARLING_CHECK(job.elements == 0 ||
                 (job_checks::aligned(job.before) && job_checks::aligned(job.after) &&
                  job_checks::aligned(job.difference)));
}
inline void check(const NormJob& job) {
  STARLING_CHECK(job.blocks == 0 || job_checks::aligned(job.gradient));
  STARLING_CHECK(job.used != nullptr && job.counted != nullptr);
  STARLING_CHECK(job.bins != nullptr && job.broken != nullptr);
}
inline void check(const LocalStepJob& job) {
  if (job.blocks == 0) return;
  STARLING_CHECK(job_checks::aligned(job.gradient) && job_checks::aligned(job.parameters));
  STARLING_CHECK(job.used != nullptr && job.groups != nullptr);
  STARLING_CHECK(job_checks::aligned(job.weights) && job_checks::aligned(job.first));
  STARLING_CHECK(job.second == nullptr || job_checks::aligned(job.second));
  STARLING_CHECK(job.precision == Precision::kFp32 || job.parameters != job.weights);
}
inline void check(const ChecksumJob& job) {
  if (job.segments.count == 0) return;
  job_checks::check(job.segments, job.first_block);
  job_checks::check(job.arrays);
  STARLING_CHECK(job.exponents != nullptr);
  STARLING_CHECK(job.seeds != nullptr && job.checksums != nullptr);
}
inline void check(const DigestJob& job) {
  if (job.segments.count == 0) return;
  job_checks::check(job.segments);
  job_checks::check(job.arrays);
  STARLING_CHECK(job.used != nullptr && job.digests != nullptr);
}

}  // namespace starling::kernels
