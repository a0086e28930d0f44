#include "core/job/models/adapter_config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "core/base/file_system.h"
#include "core/job/models/published_config.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using Object = nlohmann::ordered_json;

constexpr std::uint64_t kAdapterConfigMax = 1u << 20;

// What peft computes otherwise, and what it has where it does not.
const std::pair<const char*, nlohmann::json> kUsual[] = {
    {"peft_type", "LORA"},
    {"bias", "none"},
    {"use_rslora", false},
    {"use_dora", false},
    {"lora_bias", false},
    {"rank_pattern", nlohmann::json::object()},
    {"alpha_pattern", nlohmann::json::object()}};

Result<AdapterConfig> adapter_of(const PublishedConfig& config) {
  for (const auto& [key, value] : kUsual) {
    STARLING_TRY(config.usual(key, value));
  }
  const auto* const whole = config.member("modules_to_save");
  if (whole != nullptr && !whole->empty())
    return bad_input("its modules_to_save are " + shown_json(*whole) + ", expected none");
  AdapterConfig made{.lora = {.rank = 8, .alpha = 8}};
  STARLING_TRY(config.number("r", nullptr, made.lora.rank, 1, kLoraRankMax));
  STARLING_TRY(config.real("lora_alpha", made.lora.alpha, 0, 1e6));
  const auto* const targets = config.member("target_modules");
  if (targets == nullptr || !targets->is_array() || targets->empty())
    return bad_input("its target_modules are no list of names");
  for (const auto& target : *targets) {
    if (!target.is_string()) return bad_input("its target_modules are no list of names");
    made.lora.targets.push_back(target.get<std::string>());
  }
  const auto* const base = config.member("base_model_name_or_path");
  if (base != nullptr && base->is_string()) made.base = base->get<std::string>();
  return made;
}

}  // namespace

bool is_adapter(const std::string& folder) {
  std::error_code error;
  return fs::exists(fs::path(folder) / kAdapterConfig, error);
}

Result<AdapterConfig> read_adapter_config(const std::string& folder) {
  const std::string path = (fs::path(folder) / kAdapterConfig).string();
  STARLING_TRY(is_file(path, "the config of an adapter"));
  std::error_code error;
  if (const auto size = fs::file_size(path, error); error || size > kAdapterConfigMax)
    return bad_input("has more than " + std::to_string(kAdapterConfigMax) + " bytes; " + path);
  std::ifstream file(path, std::ios::binary);
  auto config = PublishedConfig::parse(std::string{std::istreambuf_iterator<char>(file), {}});
  if (!config) return std::move(config).error().in(path);
  auto made = adapter_of(config.value());
  if (!made) return std::move(made).error().in(path);
  return made;
}

std::string adapter_config_text(const ModelSpec& spec) {
  const LoraSpec lora = lora_of(spec);
  std::error_code error;
  fs::path base = weights_of(spec);
  if (!fs::is_directory(base, error)) base = base.parent_path();
  const bool fan_in_fan_out = std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.kFanInFanOut; })
          return kind.kFanInFanOut;
        else
          return false;
      },
      spec);
  const bool whole = lora.alpha == std::floor(lora.alpha);
  Object members{
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", base.string()},
      {"inference_mode", true},
      {"r", lora.rank},
      {"lora_alpha", whole ? Object(static_cast<std::int64_t>(lora.alpha)) : Object(lora.alpha)},
      {"lora_dropout", 0.0},
      {"target_modules", lora.targets},
      {"fan_in_fan_out", fan_in_fan_out},
      {"bias", "none"},
      {"modules_to_save", nullptr}};
  return members.dump(2, ' ', false, Object::error_handler_t::replace) + "\n";
}

}  // namespace starling
