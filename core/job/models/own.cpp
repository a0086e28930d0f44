#include "core/job/models/own.h"

#include <cmath>

#include "core/job/models/brought.h"
#include "core/job/section.h"

namespace starling {

using namespace job_words;

void OwnSpec::read(Section& s, const Job&, const std::string&) {
  s.text("name", name, 64, true);
  tensors = read_tensors(s, false);
  metrics = read_metrics(s);
  s.integer("samples", samples, 0, kSamplesMax);
  const toml::table* table = s.table("options");
  if (!table) return;
  for (const auto& [key, node] : *table) {
    const auto value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value || !std::isfinite(*value))
      return s.expected("options", node, "a table of numbers (files: [data] path)");
    options.emplace(key.str(), *value);
  }
}

void OwnSpec::write(std::ostream& out) const {
  out << "name = " << quoted(name) << "\ntensors = " << list_text(tensors, quoted)
      << "\nsamples = " << samples << "\noptions = {";
  const char* comma = " ";
  for (const auto& [key, value] : options)
    out << std::exchange(comma, ", ") << quoted(key) << " = " << number_text(value);
  out << " }\n" << texts_line("metrics", metrics);
}

}  // namespace starling
