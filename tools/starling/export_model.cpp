#include "tools/starling/export_model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <numeric>
#include <vector>

#include "actors/make_model.h"
#include "core/formats/checkpoint.h"
#include "core/formats/pretrained.h"
#include "core/formats/shard.h"
#include "core/job/layout.h"
#include "core/job/models/adapter_config.h"
#include "core/text/tokenizer_file.h"
#include "kernels/optim/optimizer.h"
#include "tools/starling/adapted.h"
#include "tools/starling/exit.h"
#include "tools/starling/model_file.h"
#include "tools/starling/prepared_run.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

struct Found {
  std::unique_ptr<Storage> storage;
  Manifest manifest;
};

// Finds the checkpoint that a path names.
Result<Found> find(const std::string& path) {
  STARLING_TRY(named, storage_named(path));
  const auto stroke = named.rfind('/');
  if (checkpoint_version(named.substr(stroke + 1))) {
    auto above = open_storage(named.substr(0, std::max<std::size_t>(stroke, 1)));
    STARLING_TRY(versions, list_checkpoints(*above));
    for (const Version version : versions)
      if (checkpoint_folder(version) == named.substr(stroke + 1)) {
        STARLING_TRY(manifest, read_manifest(*above, version));
        return Found{std::move(above), std::move(manifest)};
      }
  }
  auto storage = open_storage(named);
  STARLING_TRY(versions, list_checkpoints(*storage));
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    auto manifest = read_manifest(*storage, *version);
    if (!manifest && !is_damage(manifest.error())) return std::move(manifest).error();
    if (manifest) return Found{std::move(storage), std::move(manifest).value()};
    std::fprintf(stderr, "starling: the checkpoint of step %llu cannot be used: %s\n",
                 static_cast<unsigned long long>(*version), manifest.error().text().c_str());
  }
  // The folder of a run: its job says where they are.
  const std::string run = (fs::path(path) / "job.toml").string();
  std::error_code error;
  if (fs::is_regular_file(run, error)) {
    const auto job = read_job(run);
    if (job && job.value().checkpoint.on() && job.value().checkpoint.dir != path)
      return find(job.value().checkpoint.dir);
  }
  return Error(Code::kBadInput,
               "no checkpoint that can be read here, expected folders like step-000000040 with a "
               "manifest.json; " +
                   path);
}

// The weights, flat in the layout. Errors: kCorrupt, also where a segment is missing.
Result<std::vector<float>> read_weights(const Found& found, const Layout& layout, bool second) {
  const Version version = found.manifest.checkpoint.version;
  ShardReader reader(*found.storage, checkpoint_folder(version), layout, second);
  SegmentStates states(layout, second);
  std::vector<float> weights(layout.elements());
  std::vector<bool> there(layout.segments());
  for (const Shard& shard : found.manifest.shards)
    for (const SegmentDigest& segment : shard.segments) {
      states.clear();
      STARLING_TRY(reader.read(shard, segment, states));
      const SegmentValues values = states[0];
      std::ranges::copy(values.weights, weights.begin() + static_cast<std::ptrdiff_t>(
                                                              layout.first_element(values.id)));
      there[values.id] = true;
    }
  if (std::ranges::count(there, false) > 0)
    return Error(Code::kCorrupt, "a segment of the checkpoint of step " + std::to_string(version) +
                                     " is in none of its shards");
  return weights;
}

// Makes the folder of a model. Errors: kBadInput  it has one.
Result<> make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Error(Code::kBadInput, "cannot make " + folder + ": " + error.message());
  for (const char* const name : {kModelFile, kAdapterFile})
    if (const auto path = (fs::path(folder) / name).string();
        fs::exists(path, error) || fs::exists(path + kIndexSuffix, error))
      return Error(Code::kBadInput, folder + " already has a model, expected a new folder");
  return ok();
}

Digest digest_of(const Layout& layout, std::span<const float> parameters) {
  std::vector<SegmentId> all(layout.segments());
  std::iota(all.begin(), all.end(), SegmentId{0});
  return parameters_digest(layout, parameters, all);
}

// Returns where the model is.
Result<std::string> save(const ExportCommand& command, const Job& job, const Layout& layout,
                         const Trained& trained) {
  STARLING_TRY(make_folder(command.out));
  if (command.shard_bytes != 0 && !lora_of(job.model).on())
    return save_shards(command.out, job, layout, trained, command.shard_bytes);
  const std::string path = (fs::path(command.out) / model_file_of(job)).string();
  STARLING_TRY(save_model(path, job, layout, trained));
  return path;
}

// Saves a model whose adapters are merged. `job`: that of the adapters, or one with no data.
Result<std::string> save_merged(const ExportCommand& command, Job job, const WholeModel& whole) {
  job.model = whole.spec;
  const Trained trained{whole.parameters, digest_of(*whole.layout, whole.parameters), {}};
  STARLING_TRY(written, save(command, job, *whole.layout, trained));
  return written + ", adapters and all, its parameters' digest " + to_string(trained.digest);
}

Result<std::string> write_adapter(const ExportCommand& command) {
  STARLING_TRY(whole, read_adapted(command.checkpoint, command.base, "auto"));
  Job job;
  job.data.kind = DataKind::kText;  // the tokenizer is copied from the folders below
  STARLING_TRY(written, save_merged(command, job, whole));
  STARLING_TRY(place, base_of_adapter(command.checkpoint, command.base));
  for (const std::string& from : {command.checkpoint, place})
    if (!tokenizer_files(from).empty()) {
      STARLING_TRY(copy_tokenizer_files(from, command.out));
      break;
    }
  return "the model of " + command.checkpoint + " is " + written;
}

Result<std::string> write(const ExportCommand& command) {
  if (command.merge && is_adapter(command.checkpoint)) return write_adapter(command);
  STARLING_TRY(found, find(command.checkpoint));
  STARLING_TRY(job, parse_job(found.manifest.job, "/"));
  if (command.merge && !lora_of(job.model).on())
    return Error(Code::kBadInput,
                 "--merge is of a job with adapters, and there are none; " + command.checkpoint);
  std::error_code error;
  if (!command.base.empty()) set_weights(job.model, fs::absolute(command.base, error).string());
  STARLING_TRY(model, actors::make_model(job));
  const Layout layout(model->tensors());
  if (layout.segments() != found.manifest.segments ||
      layout.segment_blocks() != found.manifest.segment_blocks)
    return Error(
        Code::kBadInput,
        "it is cut into other segments than this version of Starling cuts; " + command.checkpoint);
  STARLING_TRY(weights, read_weights(found, layout, kernels::moments(job.optimizer) == 2));
  // A job's end leaves the working parameters, which have the job's precision.
  for (float& weight : weights) weight = kernels::rounded(weight, job.precision);
  const Checkpoint& checkpoint = found.manifest.checkpoint;
  const std::string of_step = "the model of step " + std::to_string(checkpoint.version) + " is ";
  const std::string doubt =
      checkpoint.doubted_from == kNoVersion
          ? ""
          : ", in doubt from step " + std::to_string(checkpoint.doubted_from) + " on";
  if (command.merge) {
    STARLING_TRY(whole, merge(job.model, layout, weights, "auto"));
    STARLING_TRY(written, save_merged(command, job, whole));
    return of_step + written + doubt;
  }
  Digest end{};  // that of a job which ends there
  for (const Shard& shard : found.manifest.shards)
    for (const SegmentDigest& segment : shard.segments) end = end + segment.digest;
  const Trained trained{weights, digest_of(layout, weights), end};
  STARLING_TRY(written, save(command, job, layout, trained));
  return of_step + written + ", its parameters' digest " + to_string(trained.digest) + doubt;
}

}  // namespace

void add_export(CLI::App& app, ExportCommand& command) {
  auto* sub =
      subcommand(app, "export",
                 "Makes the model of a checkpoint: model.safetensors, as a job's end "
                 "leaves it, and for a language model its config.json and tokenizer. Of a "
                 "job with [lora] these are adapters, as peft reads them; --merge makes one "
                 "model of them and the weights that they adapt.",
                 "starling export checkpoints model");
  sub->add_option(
         "checkpoint", command.checkpoint,
         "folder of checkpoints, whose newest is taken, or of one: DIR/step-000000040; with "
         "--merge also a folder with adapters")
      ->required();
  sub->add_option("out", command.out, "new folder of the model")->required();
  sub->add_flag("--merge", command.merge, "adapters become part of the weights that they adapt");
  sub->add_option("--base", command.base,
                  "with --merge: where these weights are, if not where the job found them")
      ->needs("--merge");
  sub->add_option("--max-shard-size", command.shard_bytes,
                  "several files of so much each, as 5GB, and their index (default: one file)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->transform(CLI::Validator(  // which comes first
          [](std::string& text) {
            return text.starts_with('-') ? "must be a size, is " + text : std::string();
          },
          ""))
      ->check(CLI::Range(std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()));
}

int export_model(const ExportCommand& command) {
  const auto written = write(command);
  if (!written) return fail(written.error());
  std::printf("%s\n", written.value().c_str());
  return 0;
}

}  // namespace starling::tools
