#include "core/job/script_words.h"

#include <utility>
#include <variant>

namespace starling {
namespace {

// Keys of job files whose arguments have other names.
constexpr std::pair<const char*, const char*> kArguments[] = {
    {"sequences", "batch_size"}, {"dir", "checkpoint"},      {"every", "checkpoint_every"},
    {"peak_rate", "rate"},       {"warmup_steps", "warmup"}, {"beta1", "betas"},
    {"beta2", "betas"},          {"step_every", "every"},    {"step_factor", "factor"},
    {"decay_steps", "decay"},
};

}  // namespace

bool is_described_by_script(const std::string& path) {
  return path.starts_with("/proc/") && path.find("/fd/") != std::string::npos;
}

std::string name_of_job(const std::string& path, const Job& job) {
  const auto* python = std::get_if<PythonSpec>(&job.model);
  return python != nullptr && is_described_by_script(path) ? python->script : path;
}

std::string in_words_of_script(std::string text) {
  const auto at = text.rfind("; [");
  const auto dot = at == std::string::npos ? at : text.find("].", at);
  if (dot == std::string::npos) return text;
  const auto end = text.find_first_of(",;", dot);
  const std::string key = text.substr(dot + 2, end == std::string::npos ? end : end - dot - 2);
  text.erase(at);
  for (const auto& [ours, theirs] : kArguments)
    if (key == ours && text.starts_with(key)) text.replace(0, key.size(), theirs);
  return text + "; starling.train()";
}

}  // namespace starling
