#include "core/job/models/gpt_config.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/base/file_system.h"
#include "core/base/json.h"

namespace starling {
namespace {

constexpr std::uint64_t kConfigBytesMax = 1u << 20;

// What a config.json that leaves it out means, and what is computed here.
struct Usual {
  const char* key;
  nlohmann::json value;
};

std::string said(const nlohmann::json& value) {
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 64);
}

}  // namespace

Result<Gpt2Config> parse_gpt2_config(std::string_view text) {
  STARLING_TRY(config, parse_json(text));
  if (!config.is_object() || config.value("model_type", nlohmann::json()) != "gpt2")
    return bad_input(
        "its model_type is " +
        (config.is_object() ? said(config.value("model_type", nlohmann::json())) : "missing") +
        ", expected \"gpt2\"");
  const Usual usual[] = {
      {"activation_function", "gelu_new"}, {"layer_norm_epsilon", 1e-5},
      {"scale_attn_weights", true},        {"scale_attn_by_inverse_layer_idx", false},
      {"reorder_and_upcast_attn", false},  {"add_cross_attention", false},
      {"tie_word_embeddings", true}};
  for (const auto& [key, value] : usual)
    if (const auto it = config.find(key); it != config.end() && *it != value)
      return bad_input("its " + std::string(key) + " is " + said(*it) + ", expected " +
                       said(value));
  if (const auto it = config.find("quantization_config"); it != config.end() && !it->is_null())
    return bad_input("it has a quantization_config: its weights are no plain numbers");
  Gpt2Config made;
  const struct {
    const char *key, *alias;  // transformers takes either
    std::uint32_t& value;
    std::uint32_t otherwise, most;
  } numbers[] = {{"n_layer", "num_hidden_layers", made.layers, 12, 1024},
                 {"n_head", "num_attention_heads", made.heads, 12, 1024},
                 {"n_embd", "hidden_size", made.width, 768, 65536},
                 {"n_positions", "max_position_embeddings", made.positions, 1024, 65536},
                 {"vocab_size", "vocab_size", made.vocabulary, 50257, 1 << 20}};
  for (const auto& number : numbers) {
    auto it = config.find(number.key);
    const auto alias = config.find(number.alias);
    if (it != config.end() && alias != config.end() && *it != *alias)
      return bad_input("its " + std::string(number.key) + " is " + said(*it) + " and its " +
                       number.alias + " " + said(*alias) + ", which mean the same");
    if (it == config.end()) it = alias;
    number.value = number.otherwise;
    if (it == config.end()) continue;
    if (!it->is_number_unsigned() || it->get<std::uint64_t>() < 1 ||
        it->get<std::uint64_t>() > number.most)
      return bad_input("its " + std::string(number.key) + " is " + said(*it) + ", expected 1 to " +
                       std::to_string(number.most));
    number.value = it->get<std::uint32_t>();
  }
  const auto inner = config.find("n_inner");
  if (inner != config.end() && !inner->is_null() && *inner != 4 * made.width)
    return bad_input("its n_inner is " + said(*inner) + ", expected 4 times n_embd");
  return made;
}

namespace {

std::filesystem::path file_beside(const std::string& path) {
  std::error_code error;
  const std::filesystem::path at = path;
  return (std::filesystem::is_directory(at, error) ? at : at.parent_path()) / "config.json";
}

}  // namespace

bool has_gpt2_config(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(file_beside(path), error);
}

Result<Gpt2Config> read_gpt2_config(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) return bad_input("no such file or folder of weights; " + path);
  const std::string file = file_beside(path).string();
  STARLING_TRY(is_file(file, "the config.json of a model"));
  if (const auto size = fs::file_size(file, error); error || size > kConfigBytesMax)
    return bad_input("has more than " + std::to_string(kConfigBytesMax) + " bytes; " + file);
  std::ifstream in(file, std::ios::binary);
  auto config = parse_gpt2_config(std::string{std::istreambuf_iterator<char>(in), {}});
  if (!config) return std::move(config).error().in(file);
  return config;
}

}  // namespace starling
