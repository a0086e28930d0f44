#pragma once
// config.json of a model that was published, as transformers writes it. The family's own file reads its
// fields: gpt.cpp, llama.cpp.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace starling {

inline constexpr const char* kAdapterConfig =
    "adapter_config.json";  // of adapters (adapter_config.h)

// All errors: kBadInput, and name the member.
class PublishedConfig {
 public:
  // Errors: not one JSON object.
  static Result<PublishedConfig> parse(std::string_view json);
  // Whether there is one in the folder of `path`, a folder or a file of weights.
  static bool is_beside(const std::string& path);
  // That of the folder of `path`, a folder or a file of weights; the text of an error names the file.
  static Result<PublishedConfig> read(const std::string& path);

  // Its model_type; empty: it has none that is a text.
  const std::string& model_type() const { return model_type_; }

  // A number from `least` to `most` under a key or its alias, which transformers takes, too (null: none).
  // Leaves `value` as it is where neither is there. Errors: the two differ, or it is no such number.
  Result<> number(const char* key, const char* alias, std::uint32_t& value, std::uint32_t least,
                  std::uint32_t most) const;
  // The same of a number with a fraction.
  Result<> real(const char* key, double& value, double least, double most) const;
  Result<> flag(const char* key, bool& value) const;
  // Whether a member that is there has the value that is computed here. Errors: it has another one.
  Result<> usual(const char* key, const nlohmann::json& value) const;
  // Errors: a choice that no family here computes: quantised weights, attention that is not causal or cut into
  // chunks, layers with fields of their own, a text model within another.
  Result<> plain() const;
  // Whether all its layer_types, where there are some, are this one. Errors: some are others.
  Result<> layers_are(const char* type) const;
  // All of them, an object.
  const nlohmann::json& members() const { return config_; }
  // Whether the key is there, though its value may be null.
  bool has(const char* key) const { return config_.contains(key); }
  // The member, or null: none, or it is null itself.
  const nlohmann::json* member(const char* key) const;
  // The object that is a member, as a config of its own. Errors: no object.
  Result<PublishedConfig> object(const char* key) const;

 private:
  explicit PublishedConfig(nlohmann::json config);

  nlohmann::json config_;
  std::string model_type_;
};

// The tokens that end what a published model writes, as transformers takes them: those of generation_config.json beside it,
// or where that has none of its config.json. `path`: a folder or a file of weights.
std::set<std::uint32_t> end_tokens_of(const std::string& path);

// The text of a config.json with these members, float32 weights and this token at the ends of documents.
std::string config_text_of(nlohmann::ordered_json members, std::optional<std::uint32_t> end_token);

// What a member is, for an error: printable, 64 bytes at most.
std::string shown_json(const nlohmann::json& value);

}  // namespace starling
