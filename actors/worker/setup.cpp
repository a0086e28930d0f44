#include "actors/worker/setup.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "actors/base_weights.h"
#include "actors/make_model.h"
#include "actors/pretrained.h"
#include "actors/script/python_model.h"
#include "actors/tokenizers.h"
#include "actors/worker/memory_need.h"
#include "core/base/build.h"
#include "core/base/exception.h"
#include "core/base/hash.h"
#include "core/base/machine.h"
#include "core/data/dataset.h"
#include "core/job/groups.h"
#include "core/job/schedule.h"
#include "kernels/device/array.h"
#include "kernels/grid/quantise.h"
#include "kernels/models/first_gradient.h"
#include "kernels/models/step_probe.h"
#include "kernels/optim/optimizer.h"

namespace starling::actors {
namespace {

// A resumed job may change how long and how fast
// it trains, but not how its steps are computed.
Job with_fixed_schedule(Job job) {
  job.steps = 1000;
  job.optimizer.peak_rate = 1e-3;
  job.optimizer.warmup_steps = 10;
  job.optimizer.schedule_steps = 0;
  if (!job.local.on()) return job;
  job.local.optimizer.peak_rate = 1e-3;
  job.local.optimizer.warmup_steps = 10;
  job.local.optimizer.schedule_steps = 0;
  return job;
}

// Returns a job whose micro-batch is the first few local steps of the job's, as many as divide these: a worker that
// begins computes that much, not a whole micro-batch.
Job with_few_local_steps(Job job) {
  constexpr std::uint32_t kLocalSteps = 4;
  if (!job.local.on()) return job;
  std::uint32_t few = std::min(kLocalSteps, job.local.steps);
  while (job.local.steps % few != 0) --few;
  OptimizerSpec& optimizer = job.local.optimizer;
  if (optimizer.schedule_steps == 0) optimizer.schedule_steps = local_steps(job);
  job.micro_batch_sequences = pass_sequences(job) * few;
  job.local.steps = few;
  return job;
}

// Returns how many bits larger than the gradient of a few local steps of a micro-batch the gradient of all may be, if it
// grows as the rates add up. The bits are exponents of the state: no logarithm, which differs between C libraries.
int bits_of_further_steps(const Job& job, const Job& few) {
  const auto sum = [&](std::uint32_t count) {
    double rates = 0;
    for (std::uint32_t i = 0; i < count; ++i)
      rates += learning_rate(few.local.optimizer, i, local_steps(job));
    return rates;
  };
  const double some = sum(few.local.steps), all = sum(job.local.steps);
  int bits = 0;
  if (some > 0)
    for (double reach = some; reach < all; reach *= 2) ++bits;
  return bits;
}

void widen(std::span<std::int16_t> exponents, int bits) {
  for (std::int16_t& x : exponents)
    if (x > kernels::kExponentMin)
      x = static_cast<std::int16_t>(std::min<int>(x + bits, kernels::kExponentMax));
}

// Refuses jobs that need what GPUs do not have.
Result<> check_job_for(const kernels::Device& device, const Job& job) {
  if (!device.has_arithmetic()) return ok();
  const auto is_own = [](const OptimizerSpec& optimizer) {
    return optimizer.kind == OptimizerKind::kOwn || optimizer.kind == OptimizerKind::kElementwise;
  };
  const bool own = is_own(job.optimizer);
  if (!own && !is_own(job.local.optimizer)) return ok();
  return Error(Code::kBadInput,
               "isa is \"cuda\", but the optimizer is the program's or the job's own: a GPU has "
               "adamw, adam and sgd; [" +
                   std::string(own ? "optimizer" : "local") + "].kind");
}

// The elements behind a tensor in its last block count for the block's exponent:
// a large value there would round the tensor's own elements to nothing.
Result<> check_between_tensors(const Layout& layout, std::span<const float> gradient) {
  for (std::uint32_t block = 0; block < layout.blocks(); ++block)
    for (std::uint64_t i = layout.used(block); i < kBlock; ++i) {
      const std::uint64_t at = std::uint64_t{block} * kBlock + i;
      if (gradient[at] == 0) continue;
      return Error(Code::kBadInput,
                   "the gradient must be 0 between tensors, element " + std::to_string(at) +
                       ", behind tensor " + layout.tensors()[layout.tensor_of(block)].spec.name +
                       ", is " + std::to_string(gradient[at]) + "; tensors begin at multiples of " +
                       std::to_string(kBlock));
    }
  return ok();
}

// Returns the digest of all samples of a script, which its processes read beside passes.
std::optional<Digest> read_by(const script::PythonModel& model, const GoOn& go_on,
                              const GoOn& steps_go_on) {
  script::DataRead read;
  while (go_on() && !(read = model.data().read()).over) {
    if (!steps_go_on()) model.read_rest(go_on);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return read.over && !read.digest ? model.processes().identity().data : read.digest;
}

// Checks the job and opens the device. `shares`: other processes map the parameters.
Result<std::shared_ptr<TrainingSetup>> begin(const Job& job, kernels::DeviceChoice choice,
                                             bool shares) {
  STARLING_TRY(validate_training(job));
  STARLING_TRY(kernels::check_optimizers(job));
  auto setup = std::make_shared<TrainingSetup>();
  setup->job = job;
  choice.shares = shares;
  STARLING_TRY(device, kernels::open_device(job.isa, choice));
  STARLING_TRY(check_job_for(*device, job));
  setup->device = std::move(device);
  return setup;
}

// Returns a hash of where parts and segments begin: copies of a segment go from worker to worker.
Digest cut_of(const Layout& layout) {
  std::vector<std::uint32_t> begins;
  for (const Part& part : layout.parts()) begins.push_back(part.first_block);
  for (SegmentId s = 0; s < layout.segments(); ++s) begins.push_back(layout.first_block(s));
  return hash128(as_bytes(std::span<const std::uint32_t>(begins)));
}

void set_exponents_of_statistics(const OptimizerSpec& optimizer, const Layout& layout,
                                 std::span<std::int16_t> exponents) {
  const UpdateGroups groups = update_groups(optimizer, layout.tensors());
  for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
    const TensorPlace& place = layout.tensors()[t];
    if (groups.groups[groups.of_tensor[t]].statistics)
      std::ranges::fill(exponents.subspan(place.first_block, place.blocks),
                        kernels::kStatisticsExponent);
  }
}

// `from`: whether make_model() made the model of the job, or the application brought it.
enum class ModelFrom : std::uint8_t { kJob, kApplication };

Result<std::shared_ptr<const TrainingSetup>> set_up_with(
    std::shared_ptr<TrainingSetup> setup, ModelFrom from,
    std::shared_ptr<const kernels::Model> model, std::shared_ptr<const script::PythonModel> script,
    BatchSource batches, const Digest& data_identity, DataHash hash_data, std::uint32_t threads,
    std::shared_ptr<const HeldOut> held_out = nullptr) try {
  const Job& job = setup->job;
  setup->layout = std::make_shared<const Layout>(model->tensors());
  const Layout& layout = *setup->layout;
  STARLING_TRY(check_groups(job, layout.tensors()));
  STARLING_TRY(enough_memory_for_one(job, layout, threads, machine_here(".")));
  auto parameters = kernels::Array<float>::shared(*setup->device, layout.elements());
  STARLING_TRY(script ? script->initialise(job.seed, layout, parameters)
                      : model->initialise(job.seed, layout, parameters.all()));

  STARLING_TRY(batch, batches(0, 0));
  batch.draw = {job.seed, 0, 0};
  const Job few = with_few_local_steps(job);
  if (few.local.steps < job.local.steps) {
    STARLING_TRY(part, part_of(batch, 0, job.local.steps / few.local.steps));
    batch = std::move(part);
  }
  const auto first_gradient = [&] {
    return from == ModelFrom::kJob && script == nullptr
               ? kernels::checked_first_gradient(few, *model, layout, *setup->device,
                                                 parameters.all(), batch)
               : kernels::first_gradient(few, *model, layout, *setup->device, parameters.all(),
                                         batch, parameters.place());
  };
  STARLING_TRY(probe, first_gradient());
  setup->kernel_samples = probe.samples;
  setup->first_gradient_ns =
      probe.took_ns * (job.local.on() ? job.local.steps / few.local.steps : 1);
  STARLING_TRY(setup->check(probe.result));
  std::vector<float> with_drawn;  // the gradient with numbers in the place of matrices of zeros
  if (const auto drawn = kernels::draw_zero_matrices(layout, parameters.all()); !drawn.empty()) {
    STARLING_TRY(again, first_gradient());
    setup->kernel_samples += again.samples;
    with_drawn = std::move(again.gradient);
    for (const std::size_t tensor : drawn) {
      const TensorPlace& place = layout.tensors()[tensor];
      std::ranges::fill(
          parameters.part(std::size_t{place.first_block} * kBlock, place.spec.elements()), 0.0f);
    }
  }
  STARLING_TRY(check_between_tensors(layout, probe.gradient));
  setup->exponents.resize(layout.blocks());
  kernels::initial_exponents(kernels::Grid(job), layout, probe.gradient, setup->exponents);
  if (job.local.on()) widen(setup->exponents, bits_of_further_steps(job, few));
  set_exponents_of_statistics(job.optimizer, layout, setup->exponents);

  const Digest initial =
      cut_of(layout) + hash128(as_bytes(std::span<const float>(parameters.all())));
  Digest first = hash128(as_bytes(std::span<const float>(probe.gradient)));
  if (!with_drawn.empty()) first = first + hash128(as_bytes(std::span<const float>(with_drawn)));
  const Digest steps = kernels::probe_steps(with_fixed_schedule(job));
  ByteWriter writer;
  writer.put(std::array{first, initial, data_identity, steps});
  const Digest texts = script ? script->processes().identity().text : Digest{};
  if (script) writer.put(texts);
  if (held_out) writer.put(held_out->identity());
  writer.put(probe.result.loss);
  setup->fingerprint = hash128(std::move(writer).take());
  const auto brief = [](const Digest& part) { return to_string(part).substr(0, 8); };
  // One half is of the script, one of the modules beside it (tools/python/starling/proof.py).
  const auto brief_texts = [](const Digest& both) {
    const std::string text = to_string(both);
    return text.substr(text.size() / 2, 8) + "/" + text.substr(0, 8);  // the first half comes last
  };
  const bool here = setup->device->host_memory();
  setup->fingerprint_text = "isa " + (script ? script->processes().versions() : model->isa()) +
                            (here ? "" : " on " + setup->device->name()) +
                            (script ? ", script " + brief_texts(texts) : "") + ", data " +
                            brief(data_identity) +
                            (held_out ? ", held-out data " + brief(held_out->identity()) : "") +
                            ", weights " + brief(initial) + ", first gradient " + brief(first) +
                            ", probe of steps " + brief(steps) + ", " + build_text();
  setup->model = std::move(model);
  setup->script = std::move(script);
  setup->batches = std::move(batches);
  setup->hash_data = std::move(hash_data);
  setup->held_out = std::move(held_out);
  if (!setup->hash_data.all)
    setup->hash_data.all = [data_identity](const GoOn&, const GoOn&) {
      return std::optional(data_identity);
    };
  return std::shared_ptr<const TrainingSetup>(std::move(setup));
} catch (...) {  // the model and the batches may be the application's
  return error_of_exception("setting up the model");
}

}  // namespace

Result<std::shared_ptr<const TrainingSetup>> set_up(const Job& job,
                                                    std::shared_ptr<const kernels::Model> model,
                                                    BatchSource batches,
                                                    const Digest& data_identity, DataHash hash_data,
                                                    kernels::DeviceChoice choice) {
  if (job.evaluate.on())
    return Error(
        Code::kBadInput,
        "held-out data are read for models of a job file alone, not for one that a program "
        "brings; [evaluate]");
  STARLING_TRY(setup, begin(job, std::move(choice), /*shares=*/false));
  return set_up_with(std::move(setup), ModelFrom::kApplication, std::move(model), nullptr,
                     std::move(batches), data_identity, std::move(hash_data), /*threads=*/1);
}

Result<> TrainingSetup::check(const kernels::MicroBatchResult& result) const {
  const std::size_t named = metric_names(job.model).size(), here = result.metrics.size();
  if (named == here) return ok();
  return Error(Code::kBadInput, "a micro-batch gave " + std::to_string(here) +
                                    " metrics, the job names " + std::to_string(named) +
                                    "; [model].metrics");
}

std::optional<Digest> TrainingSetup::data(const GoOn& go_on, const GoOn& steps_go_on) const {
  const auto data = hash_data.all(go_on, steps_go_on);
  return data == Digest{} ? hash128(ByteView()) : data;
}

Digest read_data(const TrainingSetup& setup, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const auto in_time = [until] { return std::chrono::steady_clock::now() < until; };
  return setup.data(in_time, [] { return false; }).value_or(Digest{});
}

Result<std::vector<float>> TrainingSetup::initial_parameters(PartId part) const {
  std::vector<float> parameters(layout->parts()[part].elements());
  STARLING_TRY(model->initialise_part(job.seed, *layout, part, parameters));
  return parameters;
}

Result<std::shared_ptr<const TrainingSetup>> set_up(const Job& job, SetupOptions options) {
  std::shared_ptr<const kernels::Model> model;
  std::shared_ptr<script::PythonModel> script;
  if (const auto* spec = std::get_if<PythonSpec>(&job.model)) {
    STARLING_TRY(made, script::make_python_model(*spec, job.isa));
    script = std::move(made);
    model = script;
  } else {
    STARLING_TRY(made, make_model(job));
    // Before memory is taken for what may be no such model.
    STARLING_TRY(check_weights(job, *made));
    STARLING_TRY(check_tokenizers(job));
    STARLING_TRY(open_base(job, *made));
    model = std::move(made);
  }
  STARLING_TRY(setup, begin(job, std::move(options.device), /*shares=*/script != nullptr));
  STARLING_TRY(opened, Dataset::open(job));
  std::shared_ptr<const Dataset> data = std::move(opened);
  std::shared_ptr<const HeldOut> held_out;
  if (job.evaluate.on()) {
    STARLING_TRY(found, HeldOut::open(job));
    held_out = std::move(found);
  }
  Digest identity = data->identity();
  DataHash hash_data{[data](const GoOn& go_on, const GoOn&) { return data->content(go_on); }, {}};
  if (script) {
    STARLING_TRY(first, data->micro_batch(0, 0));
    script->processes().on_lost(std::move(options.child_lost));
    if (job.local.on()) {
      STARLING_TRY(pass, part_of(first, 0, job.local.steps));
      first = std::move(pass);
    }
    script->begin_with(first, job.local.steps);
    script->compute_beside(*setup->device);
    STARLING_TRY(script->processes().prepare(options.threads));
    STARLING_TRY(script->meet(*setup->device));
    identity = script->processes().identity().data;
    hash_data.all = [script](const GoOn& go_on, const GoOn& steps_go_on) {
      return read_by(*script, go_on, steps_go_on);
    };
    hash_data.still_known = [script] { return script->data().read().over; };
  }
  setup->dataset = data;
  return set_up_with(
      std::move(setup), ModelFrom::kJob, std::move(model), script,
      [data](std::uint64_t step, MicroBatch m) { return data->micro_batch(step, m); }, identity,
      std::move(hash_data), options.threads, std::move(held_out));
}

}  // namespace starling::actors
