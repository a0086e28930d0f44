#include "core/job/models/brought.h"

#include "core/base/step_record.h"
#include "core/job/layout.h"
#include "core/job/section.h"

namespace starling::job_words {
namespace {

constexpr std::size_t kTensorsMax = 65536;
constexpr const char* kTooLarge = "the model must have at most 2^36 parameters, has more";

}  // namespace

std::vector<std::string> read_tensors(Section& s, bool required) {
  std::vector<std::string> texts;
  const toml::array* tensors = s.array("tensors", required, kTensorsMax);
  if (!tensors) return texts;
  std::uint64_t parameters = 0;
  for (const toml::node& node : *tensors) {
    const auto* value = node.as_string();
    const auto tensor = value ? parse_tensor(value->get()) : std::nullopt;
    if (!tensor) {
      s.expected("tensors", node, "texts like \"encoder.weight:64x128\"");
      return {};
    }
    parameters += tensor->elements();
    if (parameters > kParametersMax) s.wrong("tensors", kTooLarge);
    texts.push_back(value->get());
  }
  if (required && texts.empty()) s.wrong("tensors", "tensors must be at least one");
  return texts;
}

std::vector<std::string> read_metrics(Section& s) {
  std::vector<std::string> names;
  const toml::array* metrics = s.array("metrics", false, kMetricsMax);
  if (!metrics) return names;
  for (const toml::node& node : *metrics) {
    const auto* value = node.as_string();
    if (!value || value->get().empty() || value->get().size() > 64) {
      s.expected("metrics", node, "names of 1 to 64 bytes");
      return {};
    }
    names.push_back(value->get());
  }
  return names;
}

}  // namespace starling::job_words
