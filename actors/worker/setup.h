#pragma once
// TrainingSetup is what a worker has before it joins: the job, its model, the first parameters
// and exponents, and the fingerprint that says whether it computes the same bits as the group:
// the model's first gradient, and a few steps of a small state through grid and optimizer. What all
// of a group compute wrongly alike the fingerprint cannot show: samples of the built-in models'
// kernels are held to the formulae.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/data/dataset.h"
#include "core/data/held_out.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "kernels/device/device.h"
#include "kernels/models/model.h"

namespace starling::actors {

namespace script {
class PythonModel;
}

// Returns micro-batch m of a step; any thread. The same on every worker of a job.
using BatchSource = std::function<Result<Batch>(std::uint64_t step, MicroBatch m)>;

using GoOn = std::function<bool()>;
// DataHash says what all data are; the fingerprint sees only a sample of them. Any thread.
struct DataHash {
  // Returns the digest of all data, as far as they can be compared; nothing if `go_on` says no or
  // reading fails. Takes as long as reading the data. `steps_go_on` says no when this worker
  // computes no more.
  std::function<std::optional<Digest>(const GoOn& go_on, const GoOn& steps_go_on)> all;
  // Returns whether that digest still holds, or the data have to be read again; null: it holds.
  std::function<bool()> still_known;
};

struct TrainingSetup {
  Job job;
  std::shared_ptr<kernels::Device> device;  // where a worker's arrays live
  std::shared_ptr<const kernels::Model> model;
  std::shared_ptr<const script::PythonModel> script;  // the model, if a script's; or null
  std::shared_ptr<const Layout> layout;
  BatchSource batches;
  DataHash hash_data;
  std::shared_ptr<const Dataset> dataset;   // null: the application's
  std::shared_ptr<const HeldOut> held_out;  // null: nothing is evaluated
  // Exponents of version 0, [layout.blocks()], from the gradient of micro-batch 0 of step 0.
  std::vector<std::int16_t> exponents;
  std::uint64_t kernel_samples = 0;     // of the first gradient's kernels, held to the formulae
  std::uint64_t first_gradient_ns = 0;  // the shortest time of a micro-batch's passes
  Digest fingerprint{};
  std::string fingerprint_text;

  // Checks that `result` has what the job says that a model measures. Errors: kBadInput.
  Result<> check(const kernels::MicroBatchResult& result) const;
  // hash_data.all(), never zeros: these stand for data that are not read yet.
  std::optional<Digest> data(const GoOn& go_on, const GoOn& steps_go_on) const;
  bool data_still_known() const { return !hash_data.still_known || hash_data.still_known(); }
  // Makes parameters of version 0, [elements of the part], from the seed. Errors: the model's.
  Result<std::vector<float>> initial_parameters(PartId part) const;
};

// Builds model and layout, runs the probe. `data_identity` goes into the
// fingerprint; `device` chooses what the job's isa leaves open. Takes one forward
// and backward pass, three of a model that may keep no state. Errors: kBadInput, from the device, the
// model and the batches; kUnavailable  this machine has not the memory for a worker.
Result<std::shared_ptr<const TrainingSetup>> set_up(
    const Job& job, std::shared_ptr<const kernels::Model> model, BatchSource batches,
    const Digest& data_identity, DataHash hash_data = {}, kernels::DeviceChoice device = {});

// Reads data for so long at most, before any is computed from; returns the digest of all, zeros if
// there was not time enough. What is known when a worker joins is in the log, and is compared also
// if the worker is gone soon.
Digest read_data(const TrainingSetup& setup, std::chrono::milliseconds limit);

struct SetupOptions {
  std::uint32_t threads = 1;  // that will compute
  // Called whenever another process takes the place of one that computed
  // for a script's model, with the reason; on the thread of the pass.
  std::function<void(const std::string& why)> child_lost;
  kernels::DeviceChoice device;
};
// Sets up with the job file's own model and data.
Result<std::shared_ptr<const TrainingSetup>> set_up(const Job& job, SetupOptions options = {});

}  // namespace starling::actors
