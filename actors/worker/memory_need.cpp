#include "actors/worker/memory_need.h"

#include <algorithm>
#include <vector>

#include "core/base/machine.h"
#include "core/job/models/table.h"
#include "elastic/membership/placement.h"
#include "kernels/device/granules.h"
#include "kernels/models/local_maker.h"
#include "kernels/optim/optimizer.h"

namespace starling::actors {
namespace {

// Returns the bytes of a GPU behind an array of four bytes an element that has what a worker holds, of that of
// `workers` which takes most: whole granules of the driver's (decision 079).
std::uint64_t held_on_gpu(const Job& job, const Layout& layout, std::uint32_t workers) {
  constexpr std::size_t kGrain = 2u << 20;
  elastic::PlacementInput in;
  in.segments = layout.segments();
  in.bucket_segments = layout.bucket(0).count;
  in.replicas = job.replicas;
  in.members.resize(workers);
  std::vector<kernels::Granules> of(workers,
                                    kernels::Granules(layout.bytes_of(What::kWeights), kGrain));
  const auto holders = elastic::target_holders(in);
  for (SegmentId s = 0; s < layout.segments(); ++s)
    for (const Rank rank : holders[s])
      of[rank].take(layout.first_element(s) * sizeof(float),
                    layout.bytes_of({s, 1}, What::kWeights));
  std::uint64_t most = 0;
  for (const kernels::Granules& granules : of) {
    std::uint64_t bytes = 0;
    for (const auto& run : granules.mapped()) bytes += run.count;
    most = std::max(most, bytes);
  }
  return most;
}

std::uint64_t gradient_of_part(const Layout& layout) {
  return layout.largest_part() / kBlock * Layout::block_bytes(What::kGradient);
}

// Returns the bytes of working parameters, sums, and each thread's gradient of a part and its local steps.
std::uint64_t whole_arrays(const Job& job, const Layout& layout, std::uint32_t threads) {
  const std::uint64_t local = job.local.on() ? kernels::LocalMaker::bytes(job, layout) : 0;
  return layout.bytes_of(What::kParameters) + layout.bytes_of(What::kSums) +
         threads * (gradient_of_part(layout) + local);
}

// Errors: kUnavailable  `what` needs more than there is; 0: it is not known how much.
Result<> enough(const std::string& what, std::uint64_t need, std::uint64_t there,
                const std::string& of) {
  if (there == 0 || need <= there) return ok();
  return Error(Code::kUnavailable, "not enough memory: " + what + " at least " + memory_text(need) +
                                       ", there is " + memory_text(there) + of);
}

}  // namespace

MemoryNeed memory_of_worker(const Job& job, const Layout& layout, std::uint32_t workers,
                            std::uint32_t threads) {
  const auto bytes = [&](What what) { return layout.bytes_of(what); };
  const std::uint64_t moments = kernels::moments(job.optimizer);
  const std::uint64_t whole = whole_arrays(job, layout, threads);
  if (job.isa != "cuda") {
    const std::uint64_t copies = std::min<std::uint64_t>(job.replicas + 1, workers);
    const std::uint64_t state =
        bytes(What::kWeights) + bytes(What::kSums) + moments * bytes(What::kMoment);
    return {.host = whole + state / workers * copies};
  }
  // A thread of a built-in model makes one part's gradient while another's is read, and rounds parameters to halves.
  const std::uint64_t gradient = gradient_of_part(layout);
  const bool built_in = kind_of(job.model).computed_by_kernels;
  const std::uint64_t halves =
      job.precision == Precision::kFp32 ? 0 : layout.elements() * sizeof(std::uint16_t);
  const std::uint64_t thread = built_in ? gradient + halves : 0;
  const bool offloaded = job.offload == Offload::kMoments;
  const std::uint64_t arrays = 2 + (offloaded ? 0 : moments);  // weights, totals, moments
  // Sums leave and arrive through pinned memory, which has room for all of them, as for moments.
  return {.host = 2 * bytes(What::kSums) + (offloaded ? moments * bytes(What::kMoment) : 0),
          .gpu = whole + threads * thread + arrays * held_on_gpu(job, layout, workers)};
}

Result<> enough_memory(const Job& job, const Layout& layout, std::uint32_t workers,
                       std::uint32_t here, std::uint32_t threads) {
  return enough(std::to_string(here) + (here == 1 ? " worker needs" : " workers here need"),
                here * memory_of_worker(job, layout, workers, threads).host, memory_here(), "");
}

Result<> enough_memory_for_one(const Job& job, const Layout& layout, std::uint32_t threads,
                               const Machine& machine) {
  // Of a GPU's worker the host has the sums' pinned memory; the GPU refuses by itself.
  const std::uint64_t least =
      job.isa == "cuda" ? 2 * layout.bytes_of(What::kSums) : whole_arrays(job, layout, threads);
  STARLING_TRY(enough("a worker of this job needs", least, machine.memory, ""));
  return enough("a worker of this job needs", least, machine.memory_free,
                " free of " + memory_text(machine.memory));
}

}  // namespace starling::actors
