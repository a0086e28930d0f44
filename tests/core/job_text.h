#pragma once
// A correct job file, of which every test changes one thing. Tests run in the repository's root.

#include <doctest/doctest.h>

#include <string>

#include "core/job/job.h"

namespace starling {

inline const std::string kGood = R"([job]
name = "t"
steps = 60
[model]
kind = "gpt"
layers = 2
heads = 4
width = 64
context = 32
vocabulary = 256
[optimizer]
kind = "adamw"
peak_rate = 1e-3
warmup_steps = 10
[data]
kind = "text"
path = "core"
)";

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// What parse_job says of a file, in one line.
inline std::string error_of(const std::string& toml) {
  const auto job = parse_job(toml, ".");
  if (job) return "no error";
  CHECK(job.error().code() == Code::kBadInput);
  CHECK(job.error().text().find('\n') == std::string::npos);
  return job.error().text();
}

}  // namespace starling
