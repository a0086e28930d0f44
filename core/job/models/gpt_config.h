#pragma once
// config.json of a model that was published, as transformers writes it.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace starling {

struct Gpt2Config {
  std::uint32_t layers = 0, heads = 0, width = 0, positions = 0, vocabulary = 0;
};

// Errors: kBadInput  another model_type, a member that is no such number, or a choice that computes otherwise
// than GPT-2 here does: another activation, epsilon or width of the feed-forward part, attention scaled by
// layer or not at all, cross attention, a head that is not tied.
Result<Gpt2Config> parse_gpt2_config(std::string_view json);
// Whether there is one in the folder of `path`, a folder or a file of weights.
bool has_gpt2_config(const std::string& path);
// That of the folder of `path`, a folder or a file of weights; the text of an error names the file.
Result<Gpt2Config> read_gpt2_config(const std::string& path);

}  // namespace starling
