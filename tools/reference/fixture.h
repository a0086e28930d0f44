#pragma once
// A Fixture is a reference file, read and checked for shape.

#include <string>
#include <vector>

#include "core/data/batch.h"
#include "core/formats/safetensors.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::reference {

// A FixtureRun is one optimizer's run of the file.
struct FixtureRun {
  std::string prefix;  // of its tensors' names: "", "sgd.", "adam."
  OptimizerSpec optimizer;
};

struct Fixture {
  SafetensorsFile file;
  std::string kind;  // "gpt2" or "mlp"
  ModelSpec model;
  std::uint32_t steps = 0, micro_batches = 0, sequences = 0;
  std::vector<FixtureRun> runs;
};

Result<Fixture> open_fixture(const std::string& path);

// Returns the micro-batches of step k.
Result<std::vector<Batch>> fixture_batches(const Fixture& fixture, std::uint32_t k);

// Returns the tensors prefix + name of all names in `layout`, flat,
// padding zero. Errors: kBadInput if one is missing or has another shape.
Result<std::vector<float>> fixture_state(const Fixture& fixture, const Layout& layout,
                                         const std::string& prefix);

}  // namespace starling::reference
