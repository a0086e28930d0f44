#include "core/job/models/mlp.h"

#include "core/job/section.h"

namespace starling {

void MlpSpec::read(job_words::Section& s, const Job& job, const std::string&) {
  using job_words::shown;
  const toml::array* array = s.array("sizes", true, 64);
  if (!array) return;
  std::uint64_t parameters = 0;
  for (const toml::node& node : *array) {
    const auto* value = node.as_integer();
    if (!value || value->get() < 1 || value->get() > 1 << 20)
      return s.expected("sizes", node, "integers from 1 to 1048576");
    const auto size = static_cast<std::uint32_t>(value->get());
    if (!sizes.empty()) parameters += (sizes.back() + 1ull) * size;
    sizes.push_back(size);
  }
  if (sizes.size() < 2 || sizes.back() < 2)
    return s.wrong("sizes", "sizes must be at least [inputs, classes] with 2 classes or more, is " +
                                shown(*array));
  if (parameters > kParametersMax)
    s.wrong("sizes",
            "the model must have at most 2^36 parameters, has " + std::to_string(parameters));
  const std::uint64_t inputs = std::uint64_t{job.micro_batch_sequences} * sizes.front();
  if (inputs > kMicroBatchTokensMax)
    s.wrong("sizes", "a micro-batch must have at most 2^26 inputs (sequences times inputs), has " +
                         std::to_string(inputs));
}

void MlpSpec::write(std::ostream& out) const {
  const auto text = [](std::uint32_t size) { return std::to_string(size); };
  out << "sizes = " << job_words::list_text(sizes, text) << "\n";
}

}  // namespace starling
