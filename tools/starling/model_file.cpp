#include "tools/starling/model_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "core/base/data_files.h"
#include "core/base/s3_place.h"
#include "core/formats/pretrained.h"
#include "core/formats/safetensors.h"
#include "core/formats/storage.h"
#include "core/formats/synced_file.h"
#include "core/job/models/adapter_config.h"
#include "core/job/models/published_config.h"
#include "core/observe/line_format.h"
#include "core/text/tokenizer_file.h"
#include "core/text/tokenizer_place.h"
#include "core/text/tokens_note.h"
#include "tools/starling/adapted.h"
#include "tools/starling/check_trained.h"
#include "tools/starling/prepared_run.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

// Returns the end tokens of the weights in [model].from; empty: the job has no weights, or they name no end token.
std::set<std::uint32_t> ends_of_weights(const Job& job) {
  const std::string from = weights_of(job.model);
  return from.empty() ? std::set<std::uint32_t>() : end_tokens_of(from);
}

// Returns the token that ends a document of the job's data: that of the note beside the tokens, else the first of the
// weights in [model].from, else GPT-2's where the model has GPT-2's vocabulary.
std::optional<std::uint32_t> end_of_document(const Job& job) {
  constexpr std::uint32_t kGpt2Vocabulary = 50257, kGpt2End = 50256;
  if (job.data.kind == DataKind::kTokens && s3::is_place(job.data.path)) {
    const auto text = open_storage(job.data.path)->get(TokensNote::kFile, TokensNote::kBytesMax);
    if (text && text.value())
      if (const auto note = TokensNote::parse(*text.value())) return note->end;
  } else if (job.data.kind == DataKind::kTokens) {
    for (const std::string& place : places_of_tokens(job.data.path))
      if (const auto note = TokensNote::read(place)) return note->end;
  }
  if (const auto ends = ends_of_weights(job); !ends.empty()) return *ends.begin();
  const auto* const gpt = std::get_if<GptSpec>(&job.model);
  if (gpt != nullptr && gpt->vocabulary >= kGpt2Vocabulary) return kGpt2End;
  return std::nullopt;
}

// A file that says what the model is, for others to read it: its name and its text.
struct Config {
  const char* name;
  std::string text;
};

// That of a model that transformers has, too; none of another.
std::optional<Config> config_of(const Job& job) {
  if (lora_of(job.model).on()) return Config{kAdapterConfig, adapter_config_text(job.model)};
  return std::visit(
      [&](const auto& spec) -> std::optional<Config> {
        if constexpr (requires { spec.config_text(std::nullopt); })
          return Config{"config.json", spec.config_text(end_of_document(job))};
        else
          return std::nullopt;
      },
      job.model);
}

// How files call a tensor of the model.
std::string published_name(const ModelSpec& model, const std::string& tensor) {
  return (lora_of(model).on() ? kAdapterPrefix : "") +
         std::visit(
             [&](const auto& spec) -> std::string {
               if constexpr (requires { spec.published_name(tensor); })
                 return spec.published_name(tensor);
               else
                 return tensor;
             },
             model);
}

Result<> write_text(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  std::ofstream file(temporary, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::remove(temporary.c_str());
    return Error(Code::kBadInput, "cannot write " + path);
  }
  return ok();
}

// The tokenizer that lies beside shards in a bucket, as copy_tokenizer().
std::string copy_tokenizer_of_bucket(const Job& job, const fs::path& folder) {
  const auto storage = open_storage(job.data.path);
  for (const char* const name : {"tokenizer.json", "vocab.json", "merges.txt", kTokenizerConfig}) {
    const auto text = storage->get(name, kTokenizerBytesMax);
    if (!text)
      return "no tokenizer is beside the model, as that of the data cannot be read: " +
             text.error().text();
    if (!text.value()) continue;
    if (auto written = write_text((folder / name).string(), *text.value()); !written)
      return written.error().text();
  }
  return {};
}

// Copies the tokenizer of a job's tokens beside the model, which could not be used without. Returns a line where
// nobody knows whether there is one.
Result<std::string> copy_tokenizer(const Job& job, const fs::path& folder) {
  if (job.data.kind != DataKind::kTokens) return std::string();
  if (s3::is_place(job.data.path)) return copy_tokenizer_of_bucket(job, folder);
  std::error_code error;
  if (!data_files(job.data.path, {".bin"}))
    return "no tokenizer is beside the model, as " + job.data.path + " is gone";
  const std::string place = place_of_tokenizer(job.data.path);
  if (place.empty() || fs::equivalent(place, folder, error)) return std::string();
  STARLING_TRY(copy_tokenizer_files(place, folder.string()));
  return std::string();
}

// Writes generation_config.json with the end tokens of the weights in [model].from and that of the job's data, where
// the weights name some.
Result<> write_ends(const Job& job, const fs::path& folder) {
  auto ends = ends_of_weights(job);
  if (ends.empty()) return ok();
  if (const auto end = end_of_document(job)) ends.insert(*end);
  const nlohmann::ordered_json settings{{"eos_token_id", ends.size() == 1
                                                             ? nlohmann::ordered_json(*ends.begin())
                                                             : nlohmann::ordered_json(ends)}};
  return write_text((folder / "generation_config.json").string(), settings.dump(2) + "\n");
}

// Writes config.json and the tokenizer beside a model that transformers has, too. Returns as copy_tokenizer().
Result<std::string> write_beside(const Job& job, const fs::path& folder) {
  const auto config = config_of(job);
  if (!config) return std::string();
  STARLING_TRY(write_text((folder / config->name).string(), config->text));
  STARLING_TRY(write_ends(job, folder));
  return copy_tokenizer(job, folder);
}

std::string text_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The tensors under the names that files have, in the order of the layout.
std::vector<SafetensorsTensor> tensors_of(const Job& job, const Layout& layout,
                                          const Trained& model) {
  std::vector<SafetensorsTensor> tensors;
  for (const TensorPlace& place : layout.tensors())
    tensors.push_back({published_name(job.model, place.spec.name), Dtype::kF32, place.spec.shape,
                       as_bytes(model.parameters.subspan(std::size_t{place.first_block} * kBlock,
                                                         place.spec.elements()))});
  return tensors;
}

// Returns what a file with the whole model says of it, its own digest first.
std::map<std::string, std::string> metadata_of(const Job& job, const Layout& layout,
                                               const Trained& model) {
  nlohmann::json order = nlohmann::json::array(), shapes = nlohmann::json::array();
  std::string layers;
  for (const TensorPlace& place : layout.tensors()) {
    order.push_back(published_name(job.model, place.spec.name));
    shapes.push_back(place.spec.shape);
    layers += (layers.empty() ? "" : ",") + std::to_string(place.spec.layer) +
              (place.spec.by_rows ? "r" : "");
  }
  std::map<std::string, std::string> metadata{{"format", "pt"},
                                              {kParametersKey, to_string(model.digest)},
                                              {kOrderKey, text_of(order)},
                                              {kShapesKey, text_of(shapes)},
                                              {kLayersKey, std::move(layers)}};
  if (model.end != Digest{}) metadata[kEndKey] = to_string(model.end);
  if (const LoraSpec lora = lora_of(job.model); lora.on()) metadata[kBaseKey] = lora.base;
  return metadata;
}

// The store and the object that s3://BUCKET/PREFIX/NAME names.
struct InBucket {
  std::unique_ptr<Storage> store;
  std::string name;
  explicit InBucket(const std::string& path)
      : store(open_storage(path.substr(0, path.rfind('/')))),
        name(path.substr(path.rfind('/') + 1)) {}
};

Result<SafetensorsFile> open_model(const std::string& path) {
  if (!s3::is_place(path)) return SafetensorsFile::open(path);
  const InBucket in(path);
  STARLING_TRY(object, in.store->open(in.name));
  if (!object) return Error(Code::kBadInput, "there is no " + path);
  return SafetensorsFile::open(std::move(object));
}

bool says(const SafetensorsFile& file, const char* key, const Digest& digest) {
  const auto it = file.metadata().find(key);
  return it != file.metadata().end() && it->second == to_string(digest);
}

bool metadata_says(const std::string& path, const char* key, const Digest& digest) {
  const auto file = open_model(path);
  return file && says(file.value(), key, digest);
}

// True if another worker of this job has written the file, or this very run before.
bool has_digest(const std::string& path, const Digest& digest) {
  return metadata_says(path, kParametersKey, digest);
}

// Puts all files of a folder into a store, under the names that they have there behind `prefix`.
Result<> put_files(Storage& store, const std::string& prefix, const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::ifstream file(at->path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    if (file.bad()) return Error(Code::kBadInput, "cannot read " + at->path().string());
    const ByteView bytes = as_bytes(std::span<const char>(text));
    STARLING_TRY(store.put(prefix + at->path().filename().string(), {&bytes, 1}));
  }
  if (!error) return ok();
  return Error(Code::kBadInput, "cannot read " + folder.string() + ": " + error.message());
}

// As save_model(), into a bucket: the model last, as it stands for all. A bucket moves nothing aside, so beside another
// model this one gets a folder of its own there.
Result<SavedModel> save_into_bucket(const std::string& path, const Job& job, const Layout& layout,
                                    const Trained& model) {
  const InBucket in(path);
  std::string prefix, said;
  STARLING_TRY(there, in.store->open(in.name));
  if (there) {
    const auto file = SafetensorsFile::open(std::move(there));
    if (!file && file.error().code() == Code::kUnavailable)
      return Error(Code::kUnavailable, file.error().text());
    if (file && says(file.value(), kParametersKey, model.digest)) return SavedModel{path, {}};
    prefix = to_string(model.digest).substr(0, 16) + "/";
    said = path + " is another model; this one is " + in.store->place(prefix + in.name);
  }
  std::string folder = (fs::temp_directory_path() / "starling-model-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    return Error(Code::kBadInput, "cannot make the folder " + folder + ": " + std::strerror(errno));
  const auto put = [&]() -> Result<> {
    STARLING_TRY(missing, write_beside(job, folder));
    said += (said.empty() || missing.empty() ? "" : "; ") + missing;
    STARLING_TRY(put_files(*in.store, prefix, folder));
    STARLING_TRY(pieces, safetensors_pieces(tensors_of(job, layout, model),
                                            metadata_of(job, layout, model)));
    return in.store->put(prefix + in.name, pieces.all());
  };
  auto done = put();
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  if (!done) return std::move(done).error();
  return SavedModel{in.store->place(prefix + in.name), std::move(said)};
}

Result<> move_aside(const std::string& path) {
  if (std::rename(path.c_str(), (path + ".old").c_str()) == 0) return ok();
  return Error(Code::kBadInput,
               path + " is there and cannot be moved to " + path + ".old: " + std::strerror(errno));
}

}  // namespace

const char* model_file_of(const Job& job) {
  return lora_of(job.model).on() ? kAdapterFile : kModelFile;
}

std::string model_path(const std::string& path, const Job& job) {
  const fs::path named = path;
  if (s3::is_place(path) && named.extension() != ".safetensors")
    return path + (path.ends_with('/') ? "" : "/") + model_file_of(job);
  return named.filename() == kModelFile ? (named.parent_path() / model_file_of(job)).string()
                                        : path;
}

Result<> copy_tokenizer_files(const std::string& from, const std::string& to) {
  std::error_code error;
  auto names = tokenizer_files(from);
  if (fs::exists(fs::path(from) / kTokenizerConfig, error)) names.push_back(kTokenizerConfig);
  for (const std::string& name : names) {
    fs::copy_file(fs::path(from) / name, fs::path(to) / name, fs::copy_options::overwrite_existing,
                  error);
    if (error)
      return Error(Code::kBadInput,
                   "cannot copy " + from + "/" + name + " to " + to + ": " + error.message());
  }
  return ok();
}

OlderModel::OlderModel(std::string path) : path_(std::move(path)), seen_(now()) {}

std::string OlderModel::now() const {
  struct stat status {};
  if (path_.empty() || ::stat(path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return std::to_string(status.st_ino) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec);
}

bool is_model_of(const std::string& path, const Digest& end) {
  return metadata_says(path, kEndKey, end);
}

std::string OlderModel::move_aside(const Digest& end) const {
  if (seen_.empty() || now() != seen_ || is_model_of(path_, end)) return {};
  if (auto moved = starling::tools::move_aside(path_); !moved) return moved.error().text();
  return path_ + " is not this job's, it is now " + path_ + ".old";
}

Result<SavedModel> save_model(const std::string& path, const Job& job, const Layout& layout,
                              const Trained& model) {
  if (s3::is_place(path)) return save_into_bucket(path, job, layout, model);
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  // A lock on the folder leaves no file behind, and a killed writer gives it back.
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0)
    return Error(Code::kBadInput, "cannot open " + folder.string() + ": " + std::strerror(errno));
  ::flock(lock, LOCK_EX);
  std::string said;
  const auto write = [&]() -> Result<> {
    if (has_digest(path, model.digest)) return ok();
    if (fs::exists(path)) {
      STARLING_TRY(move_aside(path));
      said = path + " was another model, which is now " + path + ".old";
    }
    STARLING_TRY(missing, write_beside(job, folder));
    said += (said.empty() || missing.empty() ? "" : "; ") + missing;
    return write_safetensors(path, tensors_of(job, layout, model), metadata_of(job, layout, model));
  };
  auto written = write();
  ::close(lock);
  if (!written) return std::move(written).error();
  return SavedModel{path, std::move(said)};
}

Result<std::string> save_shards(const std::string& folder, const Job& job, const Layout& layout,
                                const Trained& model, std::uint64_t shard_bytes) {
  std::vector<std::vector<SafetensorsTensor>> shards;
  std::uint64_t in_last = 0, total = 0;
  for (SafetensorsTensor& tensor : tensors_of(job, layout, model)) {
    if (shards.empty() || in_last + tensor.data.size() > shard_bytes) {
      shards.emplace_back();
      in_last = 0;
    }
    in_last += tensor.data.size();
    total += tensor.data.size();
    shards.back().push_back(std::move(tensor));
  }
  STARLING_TRY(missing, write_beside(job, folder));
  if (!missing.empty()) write_line(LogLevel::kWarn, "starling: ", missing);
  const std::string one = folder + "/" + kModelFile;
  if (shards.size() == 1) {
    STARLING_TRY(
        write_safetensors(one, tensors_of(job, layout, model), metadata_of(job, layout, model)));
    return one;
  }
  nlohmann::ordered_json map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    for (const SafetensorsTensor& tensor : shards[i]) map[tensor.name] = name;
    STARLING_TRY(write_safetensors(folder + "/" + name, std::move(shards[i]), {{"format", "pt"}}));
  }
  const nlohmann::ordered_json index{
      {"metadata", {{"total_size", total}, {"total_parameters", total / sizeof(float)}}},
      {"weight_map", map}};
  const std::string path = one + kIndexSuffix, text = index.dump(2) + "\n";
  const ByteView piece(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  STARLING_TRY(write_synced_file(path, {&piece, 1}));
  return path;
}

}  // namespace starling::tools
