#include "core/job/models/published_config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/base/file_system.h"
#include "core/base/json.h"
#include "core/job/words.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kConfigBytesMax = 1u << 20;

fs::path file_beside(const std::string& path) {
  std::error_code error;
  const fs::path at = path;
  return (fs::is_directory(at, error) ? at : at.parent_path()) / "config.json";
}

}  // namespace

std::string shown_json(const nlohmann::json& value) {
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 64);
}

std::string config_text_of(nlohmann::ordered_json members, std::optional<std::uint32_t> end_token) {
  members["torch_dtype"] = "float32";
  // Explicit null keeps loaders from assuming a token where nothing is known.
  const nlohmann::ordered_json end = end_token ? nlohmann::ordered_json(*end_token) : nullptr;
  members["bos_token_id"] = end;
  members["eos_token_id"] = end;
  return members.dump(2) + "\n";
}

PublishedConfig::PublishedConfig(nlohmann::json config) : config_(std::move(config)) {
  const auto* const type = member("model_type");
  if (type != nullptr && type->is_string()) model_type_ = type->get<std::string>();
}

Result<PublishedConfig> PublishedConfig::parse(std::string_view json) {
  STARLING_TRY(config, parse_json(json));
  if (!config.is_object()) return bad_input("is no JSON object");
  return PublishedConfig(std::move(config));
}

bool PublishedConfig::is_beside(const std::string& path) {
  std::error_code error;
  return fs::exists(file_beside(path), error);
}

Result<PublishedConfig> PublishedConfig::read(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    return bad_input("no such file or folder of weights, and nothing is downloaded here; " + path);
  const std::string file = file_beside(path).string();
  if (auto there = is_file(file, "the config.json of a model"); !there) {
    const auto adapters = fs::path(file).replace_filename(kAdapterConfig);
    if (fs::exists(adapters, error))
      return bad_input("has adapters of a model and not the model, which starling export " + path +
                       " DIR --merge makes; " + path);
    return bad_input(
        there.error().text() +
        "; starling export makes a model of checkpoints, or of a run that has not ended");
  }
  if (const auto size = fs::file_size(file, error); error || size > kConfigBytesMax)
    return bad_input("has more than " + std::to_string(kConfigBytesMax) + " bytes; " + file);
  std::ifstream in(file, std::ios::binary);
  auto config = parse(std::string{std::istreambuf_iterator<char>(in), {}});
  if (!config) return std::move(config).error().in(file);
  return config;
}

std::set<std::uint32_t> end_tokens_of(const std::string& path) {
  std::set<std::uint32_t> ends;
  for (const char* const name : {"generation_config.json", "config.json"}) {
    const std::string file = file_beside(path).replace_filename(name).string();
    std::error_code error;
    if (!ends.empty() || !is_file(file, "settings") || fs::file_size(file, error) > kConfigBytesMax)
      continue;
    std::ifstream in(file, std::ios::binary);
    const auto config = PublishedConfig::parse(std::string{std::istreambuf_iterator<char>(in), {}});
    const auto* const said = config ? config.value().member("eos_token_id") : nullptr;
    if (said == nullptr) continue;
    for (const auto& end : said->is_array() ? *said : nlohmann::json::array({*said}))
      if (end.is_number_unsigned() && end.get<std::uint64_t>() <= 0x7fffffff)
        ends.insert(end.get<std::uint32_t>());
  }
  return ends;
}

const nlohmann::json* PublishedConfig::member(const char* key) const {
  const auto it = config_.find(key);
  return it == config_.end() || it->is_null() ? nullptr : &*it;
}

Result<PublishedConfig> PublishedConfig::object(const char* key) const {
  const auto* const inner = member(key);
  if (inner == nullptr || !inner->is_object())
    return bad_input("its " + std::string(key) + " is " +
                     (inner ? shown_json(*inner) : std::string("missing")) +
                     ", expected an object");
  return PublishedConfig(*inner);
}

Result<> PublishedConfig::number(const char* key, const char* alias, std::uint32_t& value,
                                 std::uint32_t least, std::uint32_t most) const {
  const auto* there = member(key);
  const auto* const other = alias ? member(alias) : nullptr;
  if (there != nullptr && other != nullptr && *there != *other)
    return bad_input("its " + std::string(key) + " is " + shown_json(*there) + " and its " + alias +
                     " " + shown_json(*other) + ", which mean the same");
  if (there == nullptr) there = other;
  if (there == nullptr) return ok();
  if (!there->is_number_unsigned() || there->get<std::uint64_t>() < least ||
      there->get<std::uint64_t>() > most)
    return bad_input("its " + std::string(key) + " is " + shown_json(*there) + ", expected " +
                     std::to_string(least) + " to " + std::to_string(most));
  value = there->get<std::uint32_t>();
  return ok();
}

Result<> PublishedConfig::real(const char* key, double& value, double least, double most) const {
  const auto* const there = member(key);
  if (there == nullptr) return ok();
  if (!there->is_number() || !(there->get<double>() >= least) || !(there->get<double>() <= most))
    return bad_input("its " + std::string(key) + " is " + shown_json(*there) +
                     ", expected a number from " + job_words::number_text(least) + " to " +
                     job_words::number_text(most));
  value = there->get<double>();
  return ok();
}

Result<> PublishedConfig::flag(const char* key, bool& value) const {
  const auto* const there = member(key);
  if (there == nullptr) return ok();
  if (!there->is_boolean())
    return bad_input("its " + std::string(key) + " is " + shown_json(*there) +
                     ", expected true or false");
  value = there->get<bool>();
  return ok();
}

Result<> PublishedConfig::usual(const char* key, const nlohmann::json& value) const {
  const auto* const there = member(key);
  if (there == nullptr || *there == value) return ok();
  return bad_input("its " + std::string(key) + " is " + shown_json(*there) + ", expected " +
                   shown_json(value));
}

Result<> PublishedConfig::plain() const {
  if (member("quantization_config") != nullptr)
    return bad_input("it has a quantization_config: its weights are no plain numbers");
  STARLING_TRY(usual("is_causal", true));
  for (const char* const key : {"attention_chunk_size", "per_layer_config", "text_config"}) {
    STARLING_TRY(usual(key, nullptr));
  }
  return ok();
}

Result<> PublishedConfig::layers_are(const char* type) const {
  const auto* const types = member("layer_types");
  if (types == nullptr) return ok();
  const auto is_other = [&](const auto& each) { return each != type; };
  if (types->is_array() && !types->empty() && std::ranges::none_of(*types, is_other)) return ok();
  return bad_input("its layer_types are " + shown_json(*types) + ", expected \"" + type +
                   "\" of all layers");
}

}  // namespace starling
