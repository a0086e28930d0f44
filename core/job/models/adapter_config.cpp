#include "core/job/models/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "core/base/file_system.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using Object = nlohmann::ordered_json;

constexpr std::uint64_t kAdapterConfigMax = 1u << 20;

// Members that reach no number of an adapter that is there, or are read below.
constexpr std::string_view kFree[] = {"peft_type",
                                      "task_type",
                                      "auto_mapping",
                                      "peft_version",
                                      "base_model_name_or_path",
                                      "revision",
                                      "inference_mode",
                                      "r",
                                      "lora_alpha",
                                      "lora_dropout",
                                      "target_modules",
                                      "fan_in_fan_out",
                                      "bias",
                                      "init_lora_weights",
                                      "layers_pattern",
                                      "megatron_core",
                                      "qalora_group_size"};

// Whether a member asks for nothing. A member that is not known here, also of a later peft, may change what adapters
// compute where it asks for something.
bool is_idle(const nlohmann::json& value) {
  return value.is_null() || value == false ||
         ((value.is_array() || value.is_object()) && value.empty());
}

Result<AdapterConfig> adapter_of(const PublishedConfig& config) {
  STARLING_TRY(config.usual("peft_type", "LORA"));
  STARLING_TRY(config.usual("bias", "none"));
  // Other first values (PiSSA's, OLoRA's) change the weights.
  const auto* const first = config.member("init_lora_weights");
  if (first != nullptr && !first->is_boolean() && *first != "gaussian")
    return bad_input("its init_lora_weights is " + shown_json(*first) + ", expected true or false");
  for (const auto& [key, value] : config.members().items())
    if (std::ranges::find(kFree, key) == std::end(kFree) && !is_idle(value))
      return bad_input("its " + shown_json(key) + " is " + shown_json(value) +
                       ", with which peft may compute otherwise than adapters do here");
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

bool is_fan_in_fan_out(const ModelSpec& spec) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.kFanInFanOut; })
          return kind.kFanInFanOut;
        else
          return false;
      },
      spec);
}

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
      {"fan_in_fan_out", is_fan_in_fan_out(spec)},
      {"bias", "none"},
      {"modules_to_save", nullptr}};
  return members.dump(2, ' ', false, Object::error_handler_t::replace) + "\n";
}

}  // namespace starling
