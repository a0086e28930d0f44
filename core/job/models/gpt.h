#pragma once
// GPT-2.

#include <string>

#include "core/job/models/kind.h"

namespace starling {

struct GptSpec {
  static constexpr ModelKind kKind{.word = "gpt", .with_article = "a gpt"};

  std::uint32_t layers = 4, heads = 4, width = 128, context = 128, vocabulary = 256;
  // The weights that training begins with (core/formats/pretrained.h), of this machine: a relative path is
  // relative to the job file. Empty: drawn from the seed. The fingerprint has their bits, no hash has the path.
  std::string from;

  ModelInput input() const { return {context, 0, vocabulary, vocabulary}; }
  void read(job_words::Section& section, const Job& job, const std::string& base);
  void write(std::ostream& out) const;
  void drop_idle();
  bool operator==(const GptSpec&) const = default;
};

}  // namespace starling
