#include "core/formats/pretrained.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "core/base/file_system.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/formats/torch_file.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOneFile[] = {"model.safetensors", "pytorch_model.bin"};
constexpr std::uint64_t kIndexBytesMax = 64u << 20;

// Names stand in messages, which are lines.
bool has_control(const std::string& name) {
  return std::ranges::any_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// The shards that an index names, and the shard of each tensor.
Result<std::map<std::string, std::string>> read_index(const std::string& path) {
  STARLING_TRY(is_file(path, "an index of shards"));
  std::error_code error;
  if (const auto size = fs::file_size(path, error); error || size > kIndexBytesMax)
    return bad_input("has more than " + std::to_string(kIndexBytesMax) + " bytes; " + path);
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto json = parse_json(text);
  if (!json) return std::move(json).error().in(path);
  const auto& index = json.value();
  const bool has_map =
      index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  if (!has_map || index["weight_map"].empty()) return bad_input("has no weight_map; " + path);
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (has_control(tensor))
      return bad_input("its weight_map has a tensor with a control character in its name; " + path);
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (name.empty() || name.find('/') != name.npos || name == "." || name == ".." ||
        has_control(name))
      return bad_input("its weight_map has a shard that is no name of a file; " + path);
    shards.emplace(tensor, name);
  }
  return shards;
}

}  // namespace

Result<PretrainedWeights> PretrainedWeights::open(const std::string& path) {
  PretrainedWeights weights;
  weights.path_ = path;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    STARLING_TRY(weights.add(path));
    return weights;
  }
  const std::string folder = path + "/";
  const auto is_there = [&](const std::string& name) { return fs::exists(folder + name, error); };
  std::string index_file;
  for (const char* const one : kOneFile) {
    if (is_there(one)) {
      STARLING_TRY(weights.add(folder + one));
      return weights;
    }
    index_file = std::string(one) + kIndexSuffix;
    if (is_there(index_file)) break;
    index_file.clear();
  }
  if (index_file.empty())
    return bad_input(
        "has no model.safetensors or pytorch_model.bin, nor the .index.json of one with shards; " +
        path);
  STARLING_TRY(index, read_index(folder + index_file));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index) shards.insert(shard);
  for (const std::string& shard : shards) {
    STARLING_TRY(weights.add(folder + shard));
  }
  for (const auto& [tensor, shard] : index) {
    const auto there = weights.tensors_.find(tensor);
    if (there == weights.tensors_.end() || there->second.file->path() != folder + shard)
      return bad_input("has no tensor " + tensor + ", which the index says to be there; " + folder +
                       shard);
  }
  for (const auto& [name, tensor] : weights.tensors_)
    if (!index.contains(name))
      return bad_input("has the tensor " + name + ", which the index does not name; " +
                       tensor.file->path());
  return weights;
}

Result<> PretrainedWeights::add(const std::string& path) {
  STARLING_TRY(stamp, stamp_of(path));
  STARLING_TRY(opened, is_torch_file(path) ? open_torch_file(path) : SafetensorsFile::open(path));
  files_.push_back(std::make_unique<const SafetensorsFile>(std::move(opened)));
  const SafetensorsFile& file = *files_.back();
  stamps_.emplace(&file, stamp);
  for (const SafetensorsEntry& entry : file.tensors()) {
    if (has_control(entry.name))
      return bad_input("has a tensor with a control character in its name; " + path);
    if (!tensors_.emplace(entry.name, Tensor{&file, &entry}).second)
      return bad_input("has the tensor " + entry.name + ", which another shard has, too; " + path);
  }
  return ok();
}

Result<PretrainedWeights::Stamp> PretrainedWeights::stamp_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return bad_input(std::string(std::strerror(errno)) + "; reading weights " + path);
  return Stamp{status.st_ino,          status.st_size,        status.st_mtim.tv_sec,
               status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

Result<> PretrainedWeights::read(const Tensor& tensor, std::uint64_t from,
                                 std::span<float> values) const {
  STARLING_TRY(tensor.file->floats(*tensor.entry, from, values));
  return unchanged(*tensor.file);
}

Result<> PretrainedWeights::unchanged(const SafetensorsFile& file) const {
  STARLING_TRY(now, stamp_of(file.path()));
  if (now == stamps_.at(&file)) return ok();
  return bad_input("was changed while it was in use; reading weights " + file.path());
}

Result<> PretrainedWeights::unchanged() const {
  for (const auto& file : files_) {
    STARLING_TRY(unchanged(*file));
  }
  return ok();
}

Result<Digest> PretrainedWeights::digest(
    std::string_view prefix, const std::function<bool(std::string_view name)>& is_spare) const {
  constexpr std::uint64_t kAtOnce = 1u << 18;
  std::map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, tensor] : tensors_) {
    const std::string_view whole = name;
    by_name.emplace(whole.starts_with(prefix) ? whole.substr(prefix.size()) : whole, &tensor);
  }
  Digest digest{};
  const auto add = [&](ByteView bytes) { digest = hash128(bytes, mix64(digest[0], digest[1])); };
  std::vector<float> values;
  for (const auto& [name, tensor] : by_name) {
    if (is_spare(name) || !is_float(tensor->entry->dtype)) continue;
    add(as_bytes(std::span<const char>(name)));
    add(as_bytes(std::span<const std::uint64_t>(tensor->entry->shape)));
    for (std::uint64_t at = 0; at < tensor->entry->elements(); at += kAtOnce) {
      values.resize(std::min(kAtOnce, tensor->entry->elements() - at));
      STARLING_TRY(read(*tensor, at, values));
      add(as_bytes(std::span<const float>(values)));
    }
  }
  return digest;
}

}  // namespace starling
