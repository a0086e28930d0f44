#pragma once
// These compare the memory that a job needs here, before it is started, with what there is.

#include <cstdint>
#include <string>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::tools {

struct MemoryNeed {  // bytes
  std::uint64_t host = 0;
  std::uint64_t gpu = 0;  // 0: the job is for none
};

// Returns what one of `workers` workers surely uses: parameters, sums, gradients
// and its part of the state. Activations, data and libraries come on top.
MemoryNeed memory_of_worker(const Job& job, const Layout& layout, std::uint32_t workers,
                            std::uint32_t threads);

// Returns the memory that this process can ever get: of the machine, swap
// included, or of its control group, whichever is less. 0: not known.
std::uint64_t memory_here();

// Returns "1.5 GiB".
std::string memory_text(std::uint64_t bytes);

// Errors: kUnavailable  `here` workers on this machine, of `workers` in all, need more memory
// of the host than there is.
Result<> enough_memory(const Job& job, const Layout& layout, std::uint32_t workers,
                       std::uint32_t here, std::uint32_t threads);

// Returns how many processes the kernel has killed for
// want of memory since it started; 0 if it does not say.
std::uint64_t kills_for_memory();

}  // namespace starling::tools
