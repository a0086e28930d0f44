#pragma once
// GPT-2.

#include "core/job/models/kind.h"

namespace starling {

struct GptSpec {
  static constexpr ModelKind kKind{.word = "gpt", .with_article = "a gpt"};

  std::uint32_t layers = 4, heads = 4, width = 128, context = 128, vocabulary = 256;

  ModelInput input() const { return {context, 0, vocabulary, vocabulary}; }
  void read(job_words::Section& section, const Job& job, const std::string& base);
  void write(std::ostream& out) const;
  bool operator==(const GptSpec&) const = default;
};

}  // namespace starling
