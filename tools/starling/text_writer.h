#pragma once
// A TextWriter has a trained language model go on from a text.

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/text/sampling.h"

namespace starling::tools {

// What is written behind a prompt.
struct Writing {
  std::uint32_t tokens = 200;  // at most
  std::uint32_t sample = 0;    // another one of the same prompt
  SamplingRule rule;
  std::vector<std::string>
      stop{};             // texts, not empty; what is written ends before the first of them
  bool past_end = false;  // a token for the end of a document ends nothing
  bool ids = false;       // the tokens as numbers, each with a blank behind it
};

struct Written {
  // Why it ended: so many tokens are there; the end of a document or a stop came; nobody wants more.
  enum class End : std::uint8_t { kLength, kStop, kBroken } end = End::kLength;
  std::uint32_t tokens = 0;
};

// Where a TextWriter finds what it writes with.
struct WriterPlaces {
  // A folder with model.safetensors and config.json, or such a file, or a folder with adapters of a model.
  std::string model;
  std::string base;  // the model that is adapted; empty: where the adapters say
  std::string
      tokenizer;  // its file or folder; empty: of the model's folder, or bytes, if it has none and 256 tokens
  std::string
      chat;  // name of a ChatForm; empty: as the tokenizer's settings say, if that is one that is known
};

// One thread.
class TextWriter {
 public:
  // isa: computes. Errors: kBadInput  it is no model that this program has write, the tokenizer is not its, or has not
  // the marks of the form of chats.
  static Result<std::unique_ptr<TextWriter>> open(const WriterPlaces& places,
                                                  const std::string& isa);
  virtual ~TextWriter() = default;

  // The tokens of a prompt, in which marks (<|endoftext|>) are tokens. Without text: what a text begins behind.
  // Errors: kBadInput  it is not UTF-8, or has a token that the model has not.
  virtual Result<std::vector<std::uint32_t>> begin(const std::string& prompt) const = 0;
  // The tokens of a chat up to the head of an answer, in which marks that a content has are text. Errors: kBadInput
  // no form of chats is known, or as chat_stretches() and begin() have them.
  virtual Result<std::vector<std::uint32_t>> begin_chat(const nlohmann::json& messages) const = 0;
  virtual bool knows_chats() const = 0;       // whether begin_chat() has a form
  virtual std::uint32_t context() const = 0;  // tokens that the model looks at
  // Writes behind a text of at least one token. `show` is called for each token with what may be shown by now, maybe
  // nothing, and says whether to go on. Errors: kBadInput  the model gives no number for any token.
  virtual Result<Written> write(const std::vector<std::uint32_t>& begun, const Writing& writing,
                                const std::function<bool(std::string_view)>& show) = 0;
};

}  // namespace starling::tools
