#pragma once
// These compare the memory that workers of a job need with what a machine has.

#include <cstdint>

#include "core/base/machine.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::actors {

struct MemoryNeed {  // bytes
  std::uint64_t host = 0;
  std::uint64_t gpu = 0;  // 0: the job is for none
};

// Returns what one of `workers` workers surely uses: parameters, sums, gradients
// and its part of the state. Activations, data and libraries come on top.
MemoryNeed memory_of_worker(const Job& job, const Layout& layout, std::uint32_t workers,
                            std::uint32_t threads);

// Errors: kUnavailable  `here` workers on this machine, of `workers` in all, need more memory
// of the host than it has.
Result<> enough_memory(const Job& job, const Layout& layout, std::uint32_t workers,
                       std::uint32_t here, std::uint32_t threads);

// Errors: kUnavailable  a worker needs more memory of the host than this machine has, or than is free
// there, however large the group is and however little of the state the worker holds.
Result<> enough_memory_for_one(const Job& job, const Layout& layout, std::uint32_t threads,
                               const Machine& machine);

}  // namespace starling::actors
