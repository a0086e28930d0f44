#include "tools/starling/check_trained.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <vector>

#include "actors/make_model.h"
#include "core/base/exit.h"
#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"
#include "core/formats/safetensors.h"
#include "core/formats/shard.h"
#include "core/job/layout.h"
#include "core/job/section.h"
#include "kernels/optim/optimizer.h"
#include "tools/starling/exit.h"
#include "tools/starling/resume.h"

namespace starling::tools {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kNamed = 10;  // tensors in a line

struct TrainedModel {
  std::size_t tensors = 0;
  std::vector<std::string>
      others;  // beside those that were trained, as a net of PyTorch's may have them
  std::uint64_t parameters = 0, not_finite = 0;
  std::string wrong;  // the first fault of a shape or of the others
  Digest digest{};

  void say(const std::string& fault) {
    if (wrong.empty()) wrong = fault;
  }
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

// The names of a list in the metadata, also of an earlier build, which put commas between them.
std::vector<std::string> names_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [](const Json& name) { return name.is_string(); };
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_text)) return words_of(text);
  return json.get<std::vector<std::string>>();
}

Error wrong_metadata(const SafetensorsFile& file, const char* key, const std::string& why) {
  return Error(Code::kBadInput, "metadata " + std::string(key) + " " + why + "; " + file.path());
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return Json(shape).dump();
}

// Compares the shapes with those in the metadata. Nothing of a file that has none.
Result<> compare_shapes(const SafetensorsFile& file, const std::vector<TensorSpec>& specs,
                        TrainedModel& trained) {
  const auto text = file.metadata().find(kShapesKey);
  if (text == file.metadata().end()) return ok();
  const Json json = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array() || json.size() != specs.size())
    return wrong_metadata(
        file, kShapesKey,
        "must have the shape of each of the " + std::to_string(specs.size()) + " tensors");
  for (std::size_t t = 0; t < specs.size(); ++t)
    if (json[t] != Json(specs[t].shape))
      trained.say(specs[t].name + " has the shape " + shape_text(specs[t].shape) +
                  " and was saved with " +
                  json[t].dump(-1, ' ', false, Json::error_handler_t::replace));
  return ok();
}

Result<Bytes> bytes_of(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  Bytes bytes(entry.bytes);
  STARLING_TRY(file.read(entry, 0, bytes));
  return bytes;
}

// Counts values of a width whose exponent has all bits set: with a fraction NaN, without infinite.
template <class Word>
void count_special(const Bytes& bytes, Word exponent, std::uint64_t& nan, std::uint64_t& infinite) {
  constexpr Word kSign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  for (std::size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    const Word rest = static_cast<Word>(word & static_cast<Word>(~kSign));
    nan += rest > exponent;
    infinite += rest == exponent;
  }
}

void count_special(const Bytes& bytes, Dtype dtype, std::uint64_t& nan, std::uint64_t& infinite) {
  if (dtype == Dtype::kF16) count_special<std::uint16_t>(bytes, 0x7c00, nan, infinite);
  if (dtype == Dtype::kBf16) count_special<std::uint16_t>(bytes, 0x7f80, nan, infinite);
  if (dtype == Dtype::kF32) count_special<std::uint32_t>(bytes, 0x7f800000u, nan, infinite);
  if (dtype == Dtype::kF64) count_special<std::uint64_t>(bytes, 0x7ff0000000000000u, nan, infinite);
}

// Looks at the tensors that the digest does not cover. Infinities are no fault: masks have them.
Result<> read_others(const SafetensorsFile& file, const std::set<std::string>& names,
                     TrainedModel& trained) {
  const auto text = file.metadata().find(kTiedKey);
  const Json tied = text == file.metadata().end()
                        ? Json::object()
                        : Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [](const Json& name) { return name.is_string(); };
  if (!tied.is_object() || !std::all_of(tied.begin(), tied.end(), is_text))
    return wrong_metadata(file, kTiedKey, "must be a JSON object of names");
  for (const SafetensorsEntry& entry : file.tensors()) {
    if (names.contains(entry.name)) continue;
    STARLING_TRY(bytes, bytes_of(file, entry));
    const std::string as = tied.value(entry.name, std::string());
    if (!as.empty()) {
      trained.others.push_back(entry.name + " (tied to " + as + ")");
      const SafetensorsEntry* const same = file.find(as);
      if (!same) return wrong_metadata(file, kTiedKey, "names " + as + ", which is not there");
      STARLING_TRY(expected, bytes_of(file, *same));
      if (entry.dtype != same->dtype || entry.shape != same->shape || bytes != expected)
        trained.say(entry.name + " differs from " + as + ", to which it is tied");
      continue;
    }
    std::uint64_t nan = 0, infinite = 0;
    count_special(bytes, entry.dtype, nan, infinite);
    if (nan > 0) trained.say(entry.name + " has " + std::to_string(nan) + " values that are NaN");
    trained.others.push_back(
        entry.name + (infinite == 0 ? "" : " (" + std::to_string(infinite) + " infinite values)"));
  }
  return ok();
}

// "a, b, c and 4 more".
std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (std::size_t i = 0; i < std::min(kNamed, names.size()); ++i)
    all += (i == 0 ? "" : ", ") + names[i];
  return names.size() <= kNamed ? all
                                : all + " and " + std::to_string(names.size() - kNamed) + " more";
}

// Sets the layers of tensors from metadata, which may be anybody's. Nothing of a file that has none.
Result<> read_layers(const SafetensorsFile& file, std::vector<TensorSpec>& specs) {
  const auto text = file.metadata().find(kLayersKey);
  if (text == file.metadata().end()) return ok();
  const std::vector<std::string> layers = words_of(text->second);
  const auto refused = [&](const std::string& why) {
    return wrong_metadata(file, kLayersKey, why);
  };
  if (layers.size() != specs.size())
    return refused("has " + std::to_string(layers.size()) + " layers of " +
                   std::to_string(specs.size()) + " tensors");
  for (std::size_t t = 0; t < specs.size(); ++t) {
    TensorSpec& spec = specs[t];
    const std::string& layer = layers[t];
    const char* const end = layer.data() + layer.size();
    const auto [behind, wrong] = std::from_chars(layer.data(), end, spec.layer);
    spec.by_rows = std::string_view(behind, end) == "r";
    if (wrong != std::errc() || (behind != end && !spec.by_rows))
      return refused("must have numbers, has \"" + layer + "\"");
    const bool joins = t > 0 && specs[t - 1].layer == spec.layer;
    if (t > 0 && specs[t - 1].layer > spec.layer) return refused("must rise");
    if (spec.by_rows && spec.shape.size() != 2)
      return refused("cuts " + spec.name + " by rows, which is no matrix");
    if (joins && (spec.by_rows || specs[t - 1].by_rows))
      return refused("cuts by rows in a layer of several tensors");
  }
  return ok();
}

Result<TrainedModel> read_model(const SafetensorsFile& file) {
  const auto order = file.metadata().find(kOrderKey);
  if (order == file.metadata().end())
    return Error(Code::kBadInput, "no metadata " + std::string(kOrderKey) + "; " + file.path());
  const std::vector<std::string> names = names_of(order->second);
  std::vector<TensorSpec> specs;
  for (const std::string& name : names) {
    const SafetensorsEntry* entry = file.find(name);
    if (!entry) return Error(Code::kBadInput, "no tensor " + name + "; " + file.path());
    specs.push_back({name, entry->shape});
  }
  if (specs.empty() || specs.size() > file.tensors().size())
    return Error(Code::kBadInput, std::to_string(file.tensors().size()) + " tensors, expected " +
                                      std::to_string(specs.size()) + "; " + file.path());
  STARLING_TRY(read_layers(file, specs));
  TrainedModel trained;
  trained.tensors = specs.size();
  STARLING_TRY(compare_shapes(file, specs, trained));
  STARLING_TRY(read_others(file, {names.begin(), names.end()}, trained));
  const Layout layout(std::move(specs));
  std::vector<float> parameters(layout.elements());
  for (const TensorPlace& place : layout.tensors()) {
    STARLING_TRY(values, file.floats(place.spec.name));
    trained.parameters += values.size();
    for (const float value : values) trained.not_finite += !std::isfinite(value);
    std::copy(
        values.begin(), values.end(),
        parameters.begin() + static_cast<std::ptrdiff_t>(std::size_t{place.first_block} * kBlock));
  }
  std::vector<SegmentId> all(layout.segments());
  std::iota(all.begin(), all.end(), SegmentId{0});
  trained.digest = parameters_digest(layout, parameters, all);
  return trained;
}

// Reads every segment of every shard, and compares it with the digests in the manifest.
Result<> read_shards(const Storage& storage, const Manifest& manifest) {
  STARLING_TRY(job, parse_job(manifest.job, "/"));
  STARLING_TRY(model, actors::make_model(job));
  const Layout layout(model->tensors());
  const bool second = kernels::moments(job.optimizer) == 2;
  if (layout.segments() != manifest.segments || layout.segment_blocks() != manifest.segment_blocks)
    return Error(Code::kBadInput,
                 "it is cut into other segments than this version of Starling cuts");
  ShardReader reader(storage, checkpoint_folder(manifest.checkpoint.version), layout, second);
  SegmentStates states(layout, second);
  for (const Shard& shard : manifest.shards)
    for (const SegmentDigest& segment : shard.segments) {
      states.clear();
      STARLING_TRY(reader.read(shard, segment, states));
    }
  return ok();
}

// Whether a run has tidied it away since the list was read.
bool is_removed(const Storage& storage, Version version) {
  const auto there = list_checkpoints(storage);
  return there &&
         std::find(there.value().begin(), there.value().end(), version) == there.value().end();
}

}  // namespace

bool is_trained_model(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  return file && file.value().metadata().count(kParametersKey) > 0;
}

int check_trained_model(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  if (!file) return fail(file.error());
  const auto read = read_model(file.value());
  if (!read) return fail(read.error());
  const TrainedModel& model = read.value();
  const std::string& said = file.value().metadata().at(kParametersKey);
  const std::string others =
      model.others.empty()
          ? ""
          : " (" + std::to_string(model.others.size()) +
                " more are not in it)\n  not in the digest: " + listed(model.others);
  std::printf("%s: a trained model, %zu tensors, %llu parameters; digest of these tensors %s%s\n",
              path.c_str(), model.tensors, static_cast<unsigned long long>(model.parameters),
              to_string(model.digest).c_str(), others.c_str());
  // The digest that people know is the job's, where this is its end; it covers moments and exponents, which no model has.
  if (const auto end = file.value().metadata().find(kEndKey); end != file.value().metadata().end())
    std::printf("  of its job's state with digest %s, which covers moments as well\n",
                job_words::shown(end->second).c_str());
  if (model.not_finite > 0)
    return fail(kExitRefuted,
                std::to_string(model.not_finite) + " parameters are not finite; " + path);
  if (!model.wrong.empty()) return fail(kExitRefuted, model.wrong + "; " + path);
  if (to_string(model.digest) != said && file.value().metadata().count(kLayersKey) == 0)
    return fail(kExitBadInput,
                "whether the parameters are those that were saved, with digest " + said +
                    ", cannot be told: the file does not say the layers of its tensors; " + path);
  if (to_string(model.digest) != said)
    return fail(
        1, "the parameters are not those that were saved, which have digest " + said + "; " + path);
  return 0;
}

int check_checkpoints(const std::string& dir) {
  const auto named = storage_named(dir);
  if (!named) return fail(named.error());
  auto storage = open_storage(named.value());
  auto versions = list_checkpoints(*storage);
  if (!versions) return fail(versions.error());
  const auto stroke = named.value().rfind('/');
  if (versions.value().empty() && checkpoint_version(named.value().substr(stroke + 1))) {
    storage = open_storage(named.value().substr(0, std::max<std::size_t>(stroke, 1)));
    versions = list_checkpoints(*storage);
    if (!versions) return fail(versions.error());
    std::erase_if(versions.value(), [&](Version version) {
      return checkpoint_folder(version) != named.value().substr(stroke + 1);
    });
  }
  if (versions.value().empty())
    return fail(
        2, "no checkpoint here, expected folders like step-000000040 with a manifest.json; " + dir);
  int code = 0;
  if (const auto owner = read_checkpoint_owner(*storage); !owner)
    code = fail(kExitRefuted, "whose checkpoints they are is not known, no run takes the folder: " +
                                  owner.error().text());
  std::size_t removed = 0;
  for (const Version version : versions.value()) {
    const std::string which = "checkpoint of step " + std::to_string(version);
    const auto manifest = read_manifest(*storage, version);
    const auto whole = manifest ? read_shards(*storage, manifest.value()) : Result<>(ok());
    if ((!manifest || !whole) && is_removed(*storage, version)) {
      std::printf("%s: removed while it was read\n", which.c_str());
      ++removed;
      continue;
    }
    if (!manifest) {
      code = fail(kExitRefuted, which + " cannot be used: " + manifest.error().text());
      continue;
    }
    if (!whole) {
      code = fail(kExitRefuted, which + ": " + whole.error().text());
      continue;
    }
    const Checkpoint& checkpoint = manifest.value().checkpoint;
    const std::string doubt =
        checkpoint.doubted_from == kNoVersion
            ? ""
            : ", in doubt from step " + std::to_string(checkpoint.doubted_from) + " on";
    std::printf("%s: %zu shards, %u segments, digest %s, whole%s\n", which.c_str(),
                manifest.value().shards.size(), manifest.value().segments,
                to_string(checkpoint.digest).c_str(), doubt.c_str());
  }
  if (removed == versions.value().size())
    return fail(kExitRefuted, "each checkpoint was removed while it was read: look again; " + dir);
  return code;
}

}  // namespace starling::tools
