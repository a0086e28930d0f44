#pragma once
// StepParts says where the time of each step went (actors/worker/step_clock.h): from a
// file, and over all workers of a run on one machine, whose processes have one clock.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/worker/step_clock.h"
#include "core/base/result.h"

namespace starling::bench {

inline constexpr std::size_t kWarmUp = 5;            // steps that are not counted
inline constexpr std::uint64_t kStart_ms = 180'000;  // for many processes on few cores to join

// Writes CSV with a head line: version, world, for each mark the time and then the work
// in ns, and the rest of StepTimes. Errors: kBadInput  the file cannot be written.
Result<> save_step_times(const std::string& path, const std::vector<actors::StepTimes>& times);
// Errors: kBadInput  no such file, or a line that is not of this form.
Result<std::vector<actors::StepTimes>> load_step_times(const std::string& path);

// The parts of a step, milliseconds, each from when the last worker ended the part before
// until the last worker ends it, from one step's telling to the next one's. So they add
// up to the step, and a worker's waiting counts only where all wait. Checksums inside the
// apply are taken out of it by their share at the worker that spent most on them.
struct StepParts {
  double compute = 0;    // of the busiest worker's micro-batches
  double hand_over = 0;  // to the computing threads and back
  double reduce = 0, norm = 0, apply = 0;
  double gather = 0;  // while no thread computes
  double vote = 0;    // ledger and votes; the norm is there
  // The part of the vote until it has passed at the first worker. From then on that one
  // applies, so on fewer cores than workers the rest is waiting for a core. 0 as work.
  double commit = 0;
  double telling = 0;    // telling the coordinators, and opening the next step
  double checksums = 0;  // of parameters, totals and state; the digest where one is due
  double step() const {
    return compute + hand_over + reduce + norm + apply + gather + vote + telling + checksums;
  }
};

// kTime: as above. kWork: the busiest worker's own thread's work in that part, whatever
// else ran on the machine; computing and communication have threads of their own.
enum class Of : std::uint8_t { kTime, kWork };

// `workers`: each worker's times. Takes steps that all of them
// tell, with the one before, without the first `skipped`.
std::vector<StepParts> step_parts(const std::vector<std::vector<actors::StepTimes>>& workers,
                                  std::size_t skipped = 0, Of of = Of::kTime);

// Returns the median of all workers' bytes in a step; 0: no two steps were told.
double bytes_a_step(const std::vector<std::vector<actors::StepTimes>>& workers,
                    std::size_t skipped = 0);

// Returns what all workers together send in a step of fp32: of every parameter
// each worker but the owner sends its sum, and the owner sends each of them the
// total (int32), if it is a replica, or else the parameter. So replicas change
// nothing. Frames, proof lanes, checksums and side entries are not counted.
double predicted_bytes(std::uint64_t parameters, std::uint32_t workers);

}  // namespace starling::bench
