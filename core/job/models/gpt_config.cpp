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
  Gpt2Config made;
  const struct {
    const char* key;
    std::uint32_t& value;
    std::uint32_t otherwise, most;
  } numbers[] = {{"n_layer", made.layers, 12, 1024},
                 {"n_head", made.heads, 12, 1024},
                 {"n_embd", made.width, 768, 65536},
                 {"n_positions", made.positions, 1024, 65536},
                 {"vocab_size", made.vocabulary, 50257, 1 << 20}};
  for (const auto& number : numbers) {
    const auto it = config.find(number.key);
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

Result<Gpt2Config> read_gpt2_config(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder =
      fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  const std::string file = (folder / "config.json").string();
  STARLING_TRY(is_file(file, "the config.json of a model"));
  if (const auto size = fs::file_size(file, error); error || size > kConfigBytesMax)
    return bad_input("has more than " + std::to_string(kConfigBytesMax) + " bytes; " + file);
  std::ifstream in(file, std::ios::binary);
  auto config = parse_gpt2_config(std::string{std::istreambuf_iterator<char>(in), {}});
  if (!config) return std::move(config).error().in(file);
  return config;
}

}  // namespace starling
