#pragma once
// What a client of OpenAI's completions asks for.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "tools/starling/text_writer.h"

namespace starling::tools {

// Of which of OpenAI's two kinds a request is.
enum class Completions : std::uint8_t { kText, kChat };

struct CompletionRequest {
  std::string prompt;       // of kText
  nlohmann::json messages;  // of kChat, for chat_stretches()
  Writing writing;
  bool stream = false;
  bool usage_at_end = false;  // of a stream
  bool echo = false;          // the prompt stands before what is written
};

// `name`: of the only model. `rule`: of a request that says nothing. max_tokens is 16 then, as OpenAI has it, and of a
// chat 0: as many as the model's context has room for. Members that are null are as if they were not there.
// Errors: kBadInput  no such object, or one that asks for what is not done here; the text names the member.
Result<CompletionRequest> parse_completion(Completions kind, std::string_view json,
                                           const std::string& name, const SamplingRule& rule);

}  // namespace starling::tools
