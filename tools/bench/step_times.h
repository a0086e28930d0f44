#pragma once
// Where the time of each step went (actors/worker/step_clock.h): as a file, and over all workers of
// a run on one machine, whose processes have one clock.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/worker/step_clock.h"
#include "core/base/result.h"

namespace starling::bench {

// CSV with a head line: version, world, for each mark the time and then the work in ns, and the
// rest of StepTimes. Errors: kBadInput  the file cannot be written.
Result<> save_step_times(const std::string& path, const std::vector<actors::StepTimes>& times);
// Errors: kBadInput  no such file, or it is not one of these: names the line.
Result<std::vector<actors::StepTimes>> load_step_times(const std::string& path);

// The parts of a step, milliseconds, each from when the last worker was through with the one before
// until the last is through with it, from one step's telling to the next one's. So they add up to
// the step, and nobody's waiting for others is counted but where all wait. Checksums inside the
// apply are taken out of it by their share at the worker that was longest at them.
struct StepParts {
  double compute = 0;    // what the busiest worker's micro-batches took
  double hand_over = 0;  // to the computing threads and back
  double reduce = 0, norm = 0, apply = 0;
  double gather = 0;  // while nothing is computed
  double vote = 0;    // ledger and votes; the norm is there
  // Of the vote, until it has passed at the first. From then on that one applies, so on fewer cores
  // than workers the rest is waiting for a core. 0 as work.
  double commit = 0;
  double telling = 0;    // the coordinators, and opening the next step
  double checksums = 0;  // of parameters, totals and state; the digest where one is due
  double step() const {
    return compute + hand_over + reduce + norm + apply + gather + vote + telling + checksums;
  }
};

// kTime: as above. kWork: what the busiest worker's own thread worked in that part, whatever else
// ran on the machine meanwhile; computing and the communication threads have threads of their own.
enum class Of : std::uint8_t { kTime, kWork };

// `workers`: each worker's times. Steps that all of them tell, of which the one before is told too,
// without the first `skipped`.
std::vector<StepParts> step_parts(const std::vector<std::vector<actors::StepTimes>>& workers,
                                  std::size_t skipped = 0, Of of = Of::kTime);

// Median over the steps of what all workers together sent in a step; 0: no two steps were told.
double bytes_a_step(const std::vector<std::vector<actors::StepTimes>>& workers,
                    std::size_t skipped = 0);

// What all workers together send in a step of fp32: of every parameter each worker but the owner
// sends its sum, and the owner sends each of them the total (int32), if it is a replica, or else
// the parameter. So replicas change nothing. Frames, proof lanes, checksums and side entries are
// not in it.
double predicted_bytes(std::uint64_t parameters, std::uint32_t workers);

}  // namespace starling::bench
