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
#include "kernels/device/rounding.h"
#include "kernels/optim/optimizer.h"
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

Result<std::string> write(const ExportCommand& command) {
  STARLING_TRY(found, find(command.checkpoint));
  STARLING_TRY(job, parse_job(found.manifest.job, "/"));
  STARLING_TRY(model, actors::make_model(job));
  const Layout layout(model->tensors());
  if (layout.segments() != found.manifest.segments ||
      layout.segment_blocks() != found.manifest.segment_blocks)
    return Error(
        Code::kBadInput,
        "it is cut into other segments than this version of Starling cuts; " + command.checkpoint);
  STARLING_TRY(weights, read_weights(found, layout, kernels::moments(job.optimizer) == 2));
  // A job's end leaves the working parameters, which have the job's precision.
  const kernels::Rounding rounding = kernels::rounding_of(job.precision);
  for (float& weight : weights) weight = kernels::rounded(weight, rounding);
  std::vector<SegmentId> all(layout.segments());
  std::iota(all.begin(), all.end(), SegmentId{0});
  const fs::path out = fs::path(command.out) / kModelFile;
  std::error_code error;
  fs::create_directories(command.out, error);
  if (error) return Error(Code::kBadInput, "cannot make " + command.out + ": " + error.message());
  if (fs::exists(out, error) || fs::exists(out.string() + kIndexSuffix, error))
    return Error(Code::kBadInput, command.out + " already has a model, expected a new folder");
  Digest end{};  // that of a job which ends there
  for (const Shard& shard : found.manifest.shards)
    for (const SegmentDigest& segment : shard.segments) end = end + segment.digest;
  const Trained trained{weights, parameters_digest(layout, weights, all), end};
  std::string written = out;
  if (command.shard_bytes == 0) {
    STARLING_TRY(save_model(out, job, layout, trained));
  } else {
    STARLING_TRY(last, save_shards(command.out, job, layout, trained, command.shard_bytes));
    written = last;
  }
  const Checkpoint& checkpoint = found.manifest.checkpoint;
  return "the model of step " + std::to_string(checkpoint.version) + " is " + written +
         ", its parameters' digest " + to_string(trained.digest) +
         (checkpoint.doubted_from == kNoVersion
              ? ""
              : ", in doubt from step " + std::to_string(checkpoint.doubted_from) + " on");
}

}  // namespace

void add_export(CLI::App& app, ExportCommand& command) {
  auto* sub = subcommand(app, "export",
                         "Makes the model of a checkpoint: model.safetensors, as a job's end "
                         "leaves it, and for a language model its config.json and tokenizer.",
                         "starling export checkpoints model");
  sub->add_option("checkpoint", command.checkpoint,
                  "folder of checkpoints, whose newest is taken, or of one: DIR/step-000000040")
      ->required();
  sub->add_option("out", command.out, "new folder of the model")->required();
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
