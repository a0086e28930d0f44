#pragma once
// `starling generate` has a trained language model write.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/text/sampling.h"
#include "tools/starling/options.h"

namespace starling::tools {

struct GenerateCommand {
  std::string
      model;  // a folder with model.safetensors and config.json, such a file, or a folder of adapters
  std::string base;  // where the weights are whose adapters `model` has; empty: as these say
  std::string
      tokenizer;  // empty: that of the model's folder; bytes, if there is none and the vocabulary is 256
  std::string prompt;
  std::string prompt_file;             // its text is the prompt; "-": standard input
  std::optional<std::string> message;  // a user's, in a chat, which the model answers
  std::string system;                  // before it
  std::string chat;                    // the form of chats; empty: as the model says
  std::uint32_t tokens = 200;
  std::uint32_t samples = 1;
  std::optional<double> temperature;   // none: 0.8, and 1 for requests, as OpenAI has it
  SamplingRule rule;                   // but its temperature
  std::vector<std::string> stop;       // texts; what is written ends before the first of them
  bool past_end = false;               // a token for the end of a document ends nothing
  bool ids = false;                    // the tokens as numbers
  std::optional<std::uint16_t> serve;  // a port: answers requests instead
  std::string isa = "auto";
};

void add_generate(CLI::App& app, GenerateCommand& command);
// Returns the exit code.
int generate(const GenerateCommand& command);

}  // namespace starling::tools
