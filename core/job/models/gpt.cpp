#include "core/job/models/gpt.h"

#include "core/job/section.h"

namespace starling {

void GptSpec::read(job_words::Section& s, const Job& job, const std::string&) {
  s.integer("layers", layers, 1, 1024, true);
  s.integer("heads", heads, 1, 1024, true);
  s.integer("width", width, 1, 65536, true);
  s.integer("context", context, 1, 65536, true);
  s.integer("vocabulary", vocabulary, 2, 1 << 20, true);
  if (!s.good()) return;
  if (width % heads != 0) {
    s.wrong("width", "width must be a multiple of heads (" + std::to_string(heads) + "), is " +
                         std::to_string(width));
  }
  const std::uint64_t c = width;
  const std::uint64_t parameters =
      (std::uint64_t{vocabulary} + context) * c + layers * (12 * c * c + 13 * c) + 2 * c;
  if (parameters > kParametersMax) {
    s.wrong("width",
            "the model must have at most 2^36 parameters, has " + std::to_string(parameters));
  }
  const std::uint64_t tokens = std::uint64_t{job.micro_batch_sequences} * context;
  if (tokens > kMicroBatchTokensMax)
    s.wrong("context",
            "a micro-batch must have at most 2^26 tokens (sequences times context), has " +
                std::to_string(tokens));
}

void GptSpec::write(std::ostream& out) const {
  out << "layers = " << layers << "\nheads = " << heads << "\nwidth = " << width
      << "\ncontext = " << context << "\nvocabulary = " << vocabulary << "\n";
}

}  // namespace starling
