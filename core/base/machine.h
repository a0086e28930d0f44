#pragma once
// Machine is what a worker says of its machine when it joins, for people and for the leader, which
// refuses a worker that every step would wait for (elastic/membership/health.h).

#include <cstdint>
#include <string>

namespace starling {

struct Machine {
  std::uint32_t processors = 0;         // that the process may use; 0, as below: not known
  std::uint64_t memory = 0;             // bytes that the process can ever get, swap included
  std::uint64_t memory_free = 0;        // of these now
  std::uint64_t open_files = 0;         // that the process may have at a time
  std::uint64_t disk_free = 0;          // bytes, where the process writes
  std::uint64_t first_gradient_ns = 0;  // the shortest time of a micro-batch's passes at set-up
  std::int64_t clock_ms = 0;            // since 1970, when the message left
  std::int64_t clock_ahead_ms = 0;      // of the coordinator's, which measures it
  std::string device;                   // "NVIDIA H200"; empty: the host computes
  bool operator==(const Machine&) const = default;
};

// Returns what the kernel says of this machine; `folder` is where the process writes. Leaves
// first_gradient_ns, clocks and device open. Threads: any.
Machine machine_here(const std::string& folder);

// Returns the memory that this process can ever get: of the machine, swap
// included, or of its control group, whichever is less. 0: not known.
std::uint64_t memory_here();
// Returns how much of it is free now; what the kernel keeps of files counts as free. 0: not known.
std::uint64_t memory_free_here();

// Returns how many processes the kernel has killed for
// want of memory since it started; 0 if it does not say.
std::uint64_t kills_for_memory();

// Returns "1.5 GiB".
std::string memory_text(std::uint64_t bytes);

}  // namespace starling
