#include "core/job/models/gpt.h"

#include <filesystem>
#include <string>

#include "core/base/named_path.h"
#include "core/job/models/gpt_config.h"
#include "core/job/section.h"

namespace starling {

namespace {

// Takes what the job file leaves out from the config.json of the weights, and holds the rest to it.
void read_config(job_words::Section& s, const GptSpec& said, GptSpec& spec) {
  const auto config = read_gpt2_config(spec.from);
  if (!config) return s.wrong("from", config.error().text());
  const Gpt2Config& there = config.value();
  const struct {
    const char* key;
    std::uint32_t GptSpec::*field;
    std::uint32_t value;
  } fields[] = {{"layers", &GptSpec::layers, there.layers},
                {"heads", &GptSpec::heads, there.heads},
                {"width", &GptSpec::width, there.width},
                {"context", &GptSpec::context, there.positions},
                {"vocabulary", &GptSpec::vocabulary, there.vocabulary}};
  for (const auto& [key, field, value] : fields) {
    if (!s.has(key)) {
      spec.*field = value;
      continue;
    }
    // Positions beyond a shorter context are left out.
    const bool shorter = field == &GptSpec::context && said.*field < value;
    if (said.*field != value && !shorter)
      return s.wrong(key, std::string(key) + " must be " +
                              (field == &GptSpec::context ? "at most " : "") +
                              std::to_string(value) + " as in the config.json of from, is " +
                              std::to_string(said.*field));
  }
}

}  // namespace

void GptSpec::read(job_words::Section& s, const Job& job, const std::string& base) {
  s.text("from", from, 4096, false);
  const bool trained = !from.empty();
  s.integer("layers", layers, 1, 1024, !trained);
  s.integer("heads", heads, 1, 1024, !trained);
  s.integer("width", width, 1, 65536, !trained);
  s.integer("context", context, 1, 65536, !trained);
  s.integer("vocabulary", vocabulary, 2, 1 << 20, !trained);
  if (trained && s.good() && job_words::path_of_this_machine(s, "from", from, "a file or folder")) {
    std::error_code error;
    const auto path = named_path(std::filesystem::path(base.empty() ? "." : base) / from, error);
    if (!error) from = path.string();
    const bool all = s.has("layers") && s.has("heads") && s.has("width") && s.has("context") &&
                     s.has("vocabulary");
    // A job that says all, as coordinators hand it to workers, needs no file to be read.
    if (!all) read_config(s, GptSpec(*this), *this);
  }
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
  if (!from.empty()) out << "from = " << job_words::quoted(from) << "\n";
  out << "layers = " << layers << "\nheads = " << heads << "\nwidth = " << width
      << "\ncontext = " << context << "\nvocabulary = " << vocabulary << "\n";
}

void GptSpec::drop_idle() {
  if (!from.empty())
    from = "/";  // where the weights lie reaches no bit, and that there are some does
}

}  // namespace starling
