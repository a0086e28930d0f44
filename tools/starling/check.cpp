// `starling check` reads a file as a run would, and computes reference files again.

#include "tools/reference/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>

#include "actors/base_weights.h"
#include "actors/make_model.h"
#include "actors/pretrained.h"
#include "actors/tokenizers.h"
#include "actors/worker/memory_need.h"
#include "core/base/file_system.h"
#include "core/base/keys.h"
#include "core/base/machine.h"
#include "core/base/s3_place.h"
#include "core/data/dataset.h"
#include "core/data/held_out.h"
#include "core/formats/checkpoint.h"
#include "core/formats/job_file.h"
#include "core/job/job.h"
#include "core/job/models/adapter_config.h"
#include "core/job/script_words.h"
#include "kernels/device/device.h"
#include "tools/starling/adapted.h"
#include "tools/starling/check_trained.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/names.h"
#include "tools/starling/prepared_run.h"
#include "tools/starling/shard.h"

namespace starling::tools {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

int check_reference(const CheckCommand& command) {
  const auto report = reference::check_fixture(command.file, command.isa, command.precision);
  if (!report) return fail(report.error());
  for (const std::string& line : report.value().lines()) std::printf("%s\n", line.c_str());
  return report.value().within() ? 0 : 1;
}

int check_keys(const std::string& file) {
  const auto ring = KeyRing::load(file);
  if (!ring) return fail(ring.error());
  const std::size_t founders = ring.value().founders();
  const std::size_t spares = ring.value().numbered("coordinator").size() - founders;
  std::printf("%s: keys of %zu coordinators%s and %zu workers, %s secrets\n", file.c_str(),
              founders, spares == 0 ? "" : (" (and " + std::to_string(spares) + " spares)").c_str(),
              ring.value().numbered("worker").size(),
              ring.value().has_secrets() ? "with" : "without");
  return 0;
}

std::string how_often(const CheckpointSpec& checkpoint) {
  std::string often;
  if (checkpoint.every < kCheckpointsByTime)
    often = "every " + std::to_string(checkpoint.every) + " steps";
  if (checkpoint.every_seconds != 0)
    often += (often.empty() ? "every " : " and every ") + std::to_string(checkpoint.every_seconds) +
             " s";
  return often;
}

// What passes keep beside parameters and gradients, where the host computes them.
std::string memory_of_pass(const Job& job, const kernels::Model& model) {
  const std::string unknown = "what a pass takes";
  if (!kind_of(job.model).computed_by_kernels || job.isa == "cuda") return unknown;
  try {
    const auto workspace = model.make_workspace(pass_sequences(job));
    return memory_text(workspace->floats().size_bytes()) + " for the passes of a compute thread";
  } catch (const std::bad_alloc&) {  // the job may be for a larger machine
    return unknown;
  }
}

void say_memory(const Job& job, const Layout& layout, const kernels::Model& model,
                std::uint32_t workers, std::uint32_t threads) {
  const actors::MemoryNeed alone = actors::memory_of_worker(job, layout, 1, threads);
  const actors::MemoryNeed each = actors::memory_of_worker(job, layout, workers, threads);
  const std::string pass = memory_of_pass(job, model);
  if (job.isa == "cuda")
    std::printf("memory of the GPU: a worker alone needs at least %s, each of %u %s, and %s\n",
                memory_text(alone.gpu).c_str(), workers, memory_text(each.gpu).c_str(),
                pass.c_str());
  const std::uint64_t there = memory_here();
  std::printf("memory: a worker alone needs at least %s, each of %u %s%s%s%s\n",
              memory_text(alone.host).c_str(), workers, memory_text(each.host).c_str(),
              job.isa == "cuda" ? ", pinned" : (", and " + pass).c_str(), there ? "; here is " : "",
              there ? memory_text(there).c_str() : "");
  if (there != 0 && each.host > there)
    std::printf("warning: this machine has not enough memory for one of %u workers\n", workers);
}

// Says what adapters are of, whose weights are those of the job.
Result<> say_adapters(const Job& job, kernels::Model& model, std::uint64_t parameters) {
  const LoraSpec lora = lora_of(job.model);
  if (!lora.on()) return ok();
  STARLING_TRY(actors::open_base(job, model));
  STARLING_TRY(base, actors::fitted_weights(job.model, model.frozen()));
  std::uint64_t frozen = 0, bytes = 0;
  for (const auto& [spec, tensor] : base.tensors) {
    frozen += spec->elements();
    bytes += tensor->entry->bytes;
  }
  std::string on_gpu;
  if (job.isa == "cuda") on_gpu = memory_text(frozen * (job.precision == Precision::kFp32 ? 4 : 2));
  std::string targets;
  for (const std::string& target : lora.targets) targets += (targets.empty() ? "" : ", ") + target;
  std::printf(
      "adapters: rank %u, alpha %g, of %s: %llu parameters are trained, %llu stay as they are, %s "
      "of memory once for all workers of a machine%s\n",
      lora.rank, lora.alpha, targets.c_str(), static_cast<unsigned long long>(parameters),
      static_cast<unsigned long long>(frozen), memory_text(bytes).c_str(),
      on_gpu.empty() ? "" : (", and " + on_gpu + " of the GPU's for each").c_str());
  return ok();
}

// What each of these workers sends in a step, in bytes of about so many. Of four: contributions to three parts in
// four of its sums, totals to two replicas, parameters to the one worker that has no copy (docs/slow-links.md).
double bytes_of_step(const Job& job, double parameters, double workers) {
  const double replicas = std::min<double>(job.replicas, workers - 1);
  const double bits = job.numbers.grid_bits;  // of sums; these of one worker's share and of all
  const auto of_sum = [&](double count) {
    return bits == 0 ? 4.0 : std::min(4.0, (bits + std::log2(std::max(count, 1.0))) / 8);
  };
  const double contribution = of_sum(job.micro_batches / workers),
               total = of_sum(job.micro_batches);
  const double parameter = job.precision == Precision::kFp32 ? 4 : 2;
  return parameters * (contribution * (workers - 1) / workers + total * replicas / workers +
                       parameter * (workers - 1 - replicas) / workers);
}

void say_slow_links(const Job& job, std::uint64_t parameters, std::uint32_t workers) {
  if (job.local.on())
    std::printf(
        "local steps: a micro-batch is %u of %u sequences; schedules of [local] have %llu steps\n",
        job.local.steps, pass_sequences(job),
        static_cast<unsigned long long>(job.local.optimizer.schedule_steps
                                            ? job.local.optimizer.schedule_steps
                                            : local_steps(job)));
  const double bytes = bytes_of_step(job, static_cast<double>(parameters), workers);
  const std::string local =
      job.local.on() ? ", " + memory_text(static_cast<std::uint64_t>(bytes / job.local.steps)) +
                           " a local step"
                     : "";
  const double seconds = bytes * 8 / 100e6;
  std::printf("bytes: of %u workers each sends some %s a step, %.*f s at 100 Mb/s%s\n", workers,
              memory_text(static_cast<std::uint64_t>(bytes)).c_str(), seconds < 10 ? 2 : 0, seconds,
              local.c_str());
}

// "the newest of step 60", and whether the job can go on from it.
Result<std::string> newest_of(const Job& job) {
  const auto storage = open_storage(job.checkpoint.dir);
  STARLING_TRY(versions, list_checkpoints(*storage));
  if (versions.empty()) return std::string("none yet");
  std::string newest = "the newest of step " + std::to_string(versions.back());
  const auto manifest = read_manifest(*storage, versions.back());
  if (!manifest) return newest + ", which cannot be used";
  if (may_go_on_from(job, manifest.value().state_hash)) return newest;
  newest += ", of another job";
  const auto was = parse_job(manifest.value().job, "/");
  if (was)
    if (const auto apart = state_differences(was.value(), job); !apart.empty())
      newest += ": " + apart.front();
  return newest;
}

// Of a folder that peft has written.
int check_adapter(const std::string& folder) {
  const auto config = read_adapter_config(folder);
  if (!config) return fail(config.error());
  const auto file = SafetensorsFile::open((std::filesystem::path(folder) / kAdapterFile).string());
  if (!file) return fail(file.error());
  std::uint64_t parameters = 0;
  for (const SafetensorsEntry& tensor : file.value().tensors()) parameters += tensor.elements();
  const LoraSpec& lora = config.value().lora;
  std::printf(
      "%s: adapters of rank %u and alpha %g, %zu tensors, %llu parameters, of the weights %s\n",
      folder.c_str(), lora.rank, lora.alpha, file.value().tensors().size(),
      static_cast<unsigned long long>(parameters), shown_json(config.value().base).c_str());
  return 0;
}

int check_job(const std::string& file, std::uint32_t workers, std::uint32_t threads) {
  const auto job = load_job(file);
  if (!job) return fail(job.error());
  if (const auto here = check_names(job.value(), file); !here) return fail(here.error());
  const auto model = actors::make_model(job.value());
  if (!model) return fail(model.error());
  if (auto fit = actors::check_weights(job.value(), *model.value()); !fit) return fail(fit.error());
  if (auto fit = actors::check_tokenizers(job.value()); !fit) return fail(fit.error());
  const auto data = Dataset::open(job.value());
  if (!data) return fail(data.error());
  if (auto there = check_shards_of(job.value()); !there) return fail(there.error());
  std::uint64_t parameters = 0;
  for (const TensorSpec& tensor : model.value()->tensors()) parameters += tensor.elements();
  const std::uint64_t samples = data.value()->samples();
  std::printf(
      "%s: job %s, %llu steps of %u micro-batches, %llu parameters, %llu samples (%.3g passes), "
      "isa %s\n",
      name_of_job(file, job.value()).c_str(), job.value().name.c_str(),
      static_cast<unsigned long long>(job.value().steps), job.value().micro_batches,
      static_cast<unsigned long long>(parameters), static_cast<unsigned long long>(samples),
      passes(job.value(), samples),
      job.value().isa == "cuda" ? "cuda" : model.value()->isa().c_str());
  if (auto said = say_adapters(job.value(), *model.value(), parameters); !said)
    return fail(said.error());
  say_slow_links(job.value(), parameters, workers);
  if (const auto lanes = data.value()->lanes())
    std::printf(
        "lanes: %u, of samples in chunks of %u; a worker keeps up to %s of data for each that it "
        "reads in a step (chunks were not read: starling check %s/index.json reads them)\n",
        job.value().micro_batches, lanes->chunk_samples, memory_text(lanes->lane_bytes).c_str(),
        job.value().data.path.c_str());
  // The job may be for other machines.
  if (const auto device = kernels::open_device(job.value().isa); !device)
    std::printf("warning: %s: no worker can begin here\n", device.error().text().c_str());
  for (const std::string& remark : {data.value()->remark(), local_remark(job.value())})
    if (!remark.empty()) std::printf("warning: %s\n", remark.c_str());
  if (job.value().evaluate.on()) {
    const auto held_out = HeldOut::open(job.value());
    if (!held_out) return fail(held_out.error());
    std::printf("held out: %u batches of %u samples, tried every %llu steps and at the end\n",
                held_out.value()->batches(), pass_sequences(job.value()),
                static_cast<unsigned long long>(job.value().evaluate.every));
  }
  const Layout layout(model.value()->tensors());
  if (const auto fit = check_tensors(job.value(), layout, file); !fit) return fail(fit.error());
  say_memory(job.value(), layout, *model.value(), workers, threads);
  if (!job.value().checkpoint.on()) return 0;
  const std::string& dir = job.value().checkpoint.dir;
  const auto newest = newest_of(job.value());
  if (!newest) return fail(newest.error());
  std::printf("checkpoints: %s in %s, %s\n", how_often(job.value().checkpoint).c_str(), dir.c_str(),
              newest.value().c_str());
  return 0;
}

}  // namespace

int check(const CheckCommand& given) {
  CheckCommand command = given;
  // The folder of a run is checked by what it has come to.
  for (const char* const name : {kModelFile, kAdapterFile}) {
    const std::string model = (std::filesystem::path(given.file) / name).string();
    if (std::error_code ignored; std::filesystem::is_regular_file(model, ignored))
      command.file = model;
  }
  const bool numbers = command.workers || command.threads;
  const auto refuse = [&] {
    return fail(Error(Code::kBadInput, "--workers and --threads are for job files; " + given.file));
  };
  if (const std::string shards = shards_at(given.file); !shards.empty())
    return numbers ? refuse() : check_shards(shards);
  const bool trained = is_trained_model(command.file);
  if (numbers && (trained || is_adapter(given.file) || ends_with(command.file, ".safetensors") ||
                  s3::is_place(command.file) || std::filesystem::is_directory(command.file)))
    return refuse();
  if (!trained && is_adapter(given.file)) return check_adapter(given.file);
  if (!trained && ends_with(command.file, ".safetensors")) return check_reference(command);
  if (command.isa != "auto" || command.precision != Precision::kFp32)
    return fail(Error(Code::kBadInput,
                      "--isa, --bf16 and --fp16 are for reference files, which are computed "
                      "again; " +
                          command.file));
  if (s3::is_place(command.file) || std::filesystem::is_directory(command.file))
    return check_checkpoints(command.file);
  if (trained) return check_trained_model(command.file);
  if (const auto there = is_file(command.file, "a job file, keys or a model"); !there)
    return fail(there.error());
  std::ifstream file(command.file);
  std::string first;
  if (std::getline(file, first) && first.rfind("starling-keys", 0) == 0)
    return numbers ? refuse() : check_keys(command.file);
  return check_job(command.file, command.workers.value_or(4), command.threads.value_or(1));
}

}  // namespace starling::tools
