#include "core/job/models/synthetic.h"

#include "core/job/section.h"

namespace starling {

using job_words::number_text;

void SyntheticSpec::read(job_words::Section& s, const Job&, const std::string&) {
  s.integer("parameters", parameters, kSyntheticParametersMin, kParametersMax, true);
  s.number("compute_ms", compute_ms, 0, 3'600'000, /*above=*/false, /*required=*/true);
  s.number("jitter", jitter, 0, 1);
  const toml::array* array = s.array("slow", false, 4096);
  if (!array) return;
  for (const toml::node& node : *array) {
    const auto factor = node.is_number() ? node.value<double>() : std::nullopt;
    if (!factor || !(*factor >= 1) || !(*factor <= kSlownessMax))
      return s.expected("slow", node, "numbers from 1.0 to " + number_text(kSlownessMax));
    slow.push_back(*factor);
  }
}

void SyntheticSpec::write(std::ostream& out) const {
  out << "parameters = " << parameters << "\ncompute_ms = " << number_text(compute_ms)
      << "\njitter = " << number_text(jitter)
      << "\nslow = " << job_words::list_text(slow, number_text) << "\n";
}

}  // namespace starling
