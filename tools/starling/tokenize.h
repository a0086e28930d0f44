#pragma once
// `starling tokenize` makes token files of texts.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/starling/options.h"

namespace starling::tools {

struct TokenizeCommand {
  std::vector<std::string> texts;  // files, folders, patterns
  std::string
      tokenizer;    // a tokenizer.json, or a folder with it, or with vocab.json and merges.txt
  std::string out;  // a new folder
  std::vector<std::string> extensions;  // of folders
  std::optional<std::string> field;     // of JSON lines; none: "text", of a chat "messages"
  std::string prompt_field;             // of JSON lines: read before the text, and not learned
  std::string chat;                     // the form of chats, which the field has then
  std::uint32_t pad_to = 0;  // documents begin at multiples of so many tokens; 0: anywhere
  std::uint32_t pack = 0;    // sequences of so many tokens have whole documents; 0: they are cut
  std::optional<std::string> begin;  // a token before each document
  std::optional<std::string> end;    // and one behind it; none: the tokenizer's. "none": no token
  bool marks = false;                // <|..|> in a text is the token of that name
  std::uint32_t tokens_of_file = 100'000'000;
  std::uint32_t threads = 0;  // 0: one for each processor
};

void add_tokenize(CLI::App& app, TokenizeCommand& command);
// Returns the exit code.
int tokenize(const TokenizeCommand& command);

}  // namespace starling::tools
