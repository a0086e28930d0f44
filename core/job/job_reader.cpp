// parse_job and load_job: from a job file to a checked Job.

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/data_files.h"
#include "core/base/file_system.h"
#include "core/base/step_record.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "core/job/script_words.h"
#include "core/job/section.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using namespace job_words;

constexpr std::uint64_t kJobFileBytesMax = 1 << 20;
constexpr std::uint64_t kStepsMax = 0xffff'ffff;  // what a random number's counter holds
constexpr std::uint64_t kParametersMax = 1ull << 36;
constexpr std::size_t kParserTextMax = 240;  // what the TOML library says of a mistake
constexpr std::uint64_t kSamplesMax = 1ull << 48;
constexpr std::size_t kTensorsMax = 65536;
constexpr const char* kTooLarge = "the model must have at most 2^36 parameters, has more";
constexpr std::uint64_t kMicroBatchTokensMax = 1ull << 26;  // sequences * context

void read_loss_scale(Section& s, Job& job) {
  std::uint32_t scale = 1u << job.loss_scale;
  s.integer("loss_scale", scale, 1, 1u << LossScaleRule::kMax);
  s.integer("loss_scale_steps", job.loss_scale_steps, 1, 1'000'000'000);
  if (!std::has_single_bit(scale))
    s.wrong("loss_scale", "loss_scale must be a power of two, is " + std::to_string(scale));
  job.loss_scale = static_cast<std::uint8_t>(std::bit_width(scale) - 1);
  const Job usual;
  const bool chosen =
      job.loss_scale != usual.loss_scale || job.loss_scale_steps != usual.loss_scale_steps;
  if (chosen && job.precision != Precision::kFp16)
    s.wrong("loss_scale", "the loss is scaled with precision = \"fp16\" alone");
}

void read_job(Section s, Job& job) {
  s.text("name", job.name, 64, true);
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  };
  if (s.good() && !std::all_of(job.name.begin(), job.name.end(), plain))
    s.wrong("name",
            "name must consist of letters, digits, '.', '_' and '-', is " + shown(job.name));
  s.integer("seed", job.seed, 0, kIntegerMax);
  s.integer("steps", job.steps, 1, kStepsMax, true);
  s.integer("micro_batches", job.micro_batches, 1, 4096);
  s.integer("sequences", job.micro_batch_sequences, 1, 65536);
  s.integer("replicas", job.replicas, 0, 16);
  s.choice("on_nonfinite", job.on_nonfinite, kNonFinite, false);
  s.choice("precision", job.precision, kPrecisions, false);
  read_loss_scale(s, job);
  s.choice("offload", job.offload, kOffloads, false);
  s.boolean("recompute", job.recompute);
  int isa = 0;
  s.choice("isa", isa, kIsa, false);
  job.isa = word_of(kIsa, isa);
  if (job.offload != Offload::kNone && job.isa != "cuda" && job.isa != "emulated")
    s.wrong("offload", "offload is of a GPU's worker, isa = \"cuda\"");
  s.finish();
}

void read_gpt(Section& s, const Job& job, GptSpec& gpt) {
  s.integer("layers", gpt.layers, 1, 1024, true);
  s.integer("heads", gpt.heads, 1, 1024, true);
  s.integer("width", gpt.width, 1, 65536, true);
  s.integer("context", gpt.context, 1, 65536, true);
  s.integer("vocabulary", gpt.vocabulary, 2, 1 << 20, true);
  if (!s.good()) return;
  if (gpt.width % gpt.heads != 0) {
    s.wrong("width", "width must be a multiple of heads (" + std::to_string(gpt.heads) + "), is " +
                         std::to_string(gpt.width));
  }
  const std::uint64_t c = gpt.width;
  const std::uint64_t parameters = (std::uint64_t{gpt.vocabulary} + gpt.context) * c +
                                   gpt.layers * (12 * c * c + 13 * c) + 2 * c;
  if (parameters > kParametersMax) {
    s.wrong("width",
            "the model must have at most 2^36 parameters, has " + std::to_string(parameters));
  }
  if (std::uint64_t{job.micro_batch_sequences} * gpt.context > kMicroBatchTokensMax)
    s.wrong("context",
            "a micro-batch must have at most 2^26 tokens (sequences times context), has " +
                std::to_string(std::uint64_t{job.micro_batch_sequences} * gpt.context));
}

void read_mlp(Section& s, const Job& job, MlpSpec& mlp) {
  const toml::array* sizes = s.array("sizes", true, 64);
  if (!sizes) return;
  std::uint64_t parameters = 0;
  for (const toml::node& node : *sizes) {
    const auto* value = node.as_integer();
    if (!value || value->get() < 1 || value->get() > 1 << 20)
      return s.expected("sizes", node, "integers from 1 to 1048576");
    const auto size = static_cast<std::uint32_t>(value->get());
    if (!mlp.sizes.empty()) parameters += (mlp.sizes.back() + 1ull) * size;
    mlp.sizes.push_back(size);
  }
  if (mlp.sizes.size() < 2 || mlp.sizes.back() < 2)
    return s.wrong("sizes", "sizes must be at least [inputs, classes] with 2 classes or more, is " +
                                shown(*sizes));
  if (parameters > kParametersMax)
    s.wrong("sizes",
            "the model must have at most 2^36 parameters, has " + std::to_string(parameters));
  if (std::uint64_t{job.micro_batch_sequences} * mlp.sizes.front() > kMicroBatchTokensMax)
    s.wrong("sizes", "a micro-batch must have at most 2^26 inputs (sequences times inputs), has " +
                         std::to_string(std::uint64_t{job.micro_batch_sequences} * mlp.sizes[0]));
}

void read_synthetic(Section& s, SyntheticSpec& synthetic) {
  s.integer("parameters", synthetic.parameters, kSyntheticParametersMin, kParametersMax, true);
  s.number("compute_ms", synthetic.compute_ms, 0, 3'600'000, /*above=*/false, /*required=*/true);
  s.number("jitter", synthetic.jitter, 0, 1);
  const toml::array* slow = s.array("slow", false, 4096);
  if (!slow) return;
  for (const toml::node& node : *slow) {
    const auto factor = node.is_number() ? node.value<double>() : std::nullopt;
    if (!factor || !(*factor >= 1) || !(*factor <= kSlownessMax))
      return s.expected("slow", node, "numbers from 1.0 to " + number_text(kSlownessMax));
    synthetic.slow.push_back(*factor);
  }
}

// Errors are noted in `s`.
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

// Reads texts that the Python package has written, and people may have.
std::vector<std::string> read_texts(Section& s, const char* key, std::size_t count_max,
                                    std::size_t bytes_max) {
  std::vector<std::string> texts;
  const toml::array* array = s.array(key, false, count_max);
  if (!array) return texts;
  for (const toml::node& node : *array) {
    const auto* value = node.as_string();
    if (!value || value->get().size() > bytes_max || value->get().find('\0') != std::string::npos) {
      s.expected(key, node, "texts of at most " + std::to_string(bytes_max) + " bytes");
      return {};
    }
    texts.push_back(value->get());
  }
  return texts;
}

void read_own(Section& s, OwnSpec& own) {
  s.text("name", own.name, 64, true);
  own.tensors = read_tensors(s, false);
  own.metrics = read_metrics(s);
  s.integer("samples", own.samples, 0, kSamplesMax);
  const toml::table* options = s.table("options");
  if (!options) return;
  for (const auto& [key, node] : *options) {
    const auto value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value || !std::isfinite(*value))
      return s.expected("options", node, "a table of numbers (files: [data] path)");
    own.options.emplace(key.str(), *value);
  }
}

// Whether it is a path of this machine; else the section is wrong. `what`: "a file or folder".
bool path_of_this_machine(Section& s, const char* key, const std::string& path, const char* what) {
  if (path.find("://") != std::string::npos)
    s.wrong(key, std::string(key) + " must be " + what + " of this machine, is the address " +
                     shown(path) + ", which nothing here understands");
  else if (path.starts_with("~"))
    s.wrong(key, std::string(key) + " is " + shown(path) +
                     ", and ~ means no folder here: write the whole path");
  return s.good();
}

void read_python(Section& s, const std::string& base, PythonSpec& python) {
  s.text("script", python.script, 4096, true);
  s.integer("samples", python.samples, 1, kSamplesMax, true);
  s.integer("patience_s", python.patience_s, 1, 86400);
  python.tensors = read_tensors(s, true);
  python.metrics = read_metrics(s);
  s.text("module", python.module, 512, false);
  python.arguments = read_texts(s, "arguments", 1024, 4096);
  python.text = read_texts(s, "text", 4096, 1024);
  s.integer("call", python.call, 1, 65536);
  s.text("at", python.at, 512, false);
  python.earlier = read_texts(s, "earlier", 65536, 65536);
  s.text("started", python.started, 4096, false);
  if (!s.good() || !path_of_this_machine(s, "script", python.script, "a file")) return;
  if (!python.earlier.empty() && python.earlier.size() + 1 != python.call)
    return s.wrong("earlier", "earlier must be what the calls before call " +
                                  std::to_string(python.call) + " came to, has " +
                                  std::to_string(python.earlier.size()));
  std::error_code error;
  const fs::path path = fs::absolute(fs::path(base.empty() ? "." : base) / python.script, error);
  if (!error) python.script = path.lexically_normal().string();
}

void read_model(Section s, const std::string& base, Job& job) {
  enum : int { kGpt, kMlp, kSynthetic, kPython, kOwn };  // as in kModels
  int kind = kGpt;
  s.choice("kind", kind, kModels, true);
  const std::string why = "to kind \"" + std::string(word_of(kModels, kind)) + "\"";
  if (kind != kGpt) s.refuse({"layers", "heads", "width", "context", "vocabulary"}, why);
  if (kind != kMlp) s.refuse({"sizes"}, why);
  if (kind != kSynthetic) s.refuse({"parameters", "compute_ms", "jitter", "slow"}, why);
  if (kind != kPython)
    s.refuse(
        {"script", "patience_s", "module", "arguments", "text", "call", "at", "earlier", "started"},
        why);
  if (kind != kOwn) s.refuse({"name", "options"}, why);
  if (kind != kPython && kind != kOwn) s.refuse({"samples", "tensors", "metrics"}, why);
  if (kind == kGpt) read_gpt(s, job, job.model.emplace<GptSpec>());
  if (kind == kMlp) read_mlp(s, job, job.model.emplace<MlpSpec>());
  if (kind == kSynthetic) read_synthetic(s, job.model.emplace<SyntheticSpec>());
  if (kind == kOwn) read_own(s, job.model.emplace<OwnSpec>());
  if (kind == kPython) read_python(s, base, job.model.emplace<PythonSpec>());
  s.finish();
}

void read_optimizer(Section s, const Job& job, OptimizerSpec& o) {
  s.choice("kind", o.kind, kOptimizers, true);
  s.number("peak_rate", o.peak_rate, 0, 1000, /*above=*/true, /*required=*/true);
  s.number("floor", o.floor, 0, 1);
  s.integer("warmup_steps", o.warmup_steps, 0, kStepsMax);
  s.integer("schedule_steps", o.schedule_steps, 0, kStepsMax);
  s.number("clip", o.clip, 0, 1e30);
  s.text("schedule", o.schedule, 64, false);
  const std::string kind = "to kind \"" + std::string(word_of(kOptimizers, int(o.kind))) + "\"";
  if (o.kind != OptimizerKind::kOwn) s.refuse({"name"}, kind);
  if (o.kind == OptimizerKind::kOwn) {
    s.text("name", o.name, 64, true);
    s.refuse({"beta1", "beta2", "epsilon", "momentum", "nesterov"}, kind);
  } else if (o.kind == OptimizerKind::kSgd) {
    s.refuse({"beta1", "beta2", "epsilon"}, kind);
    s.number("momentum", o.momentum, 0, 0.999999);
    s.boolean("nesterov", o.nesterov);
  } else {
    s.refuse({"momentum", "nesterov"}, kind);
    s.number("beta1", o.beta1, 0, 0.999999);
    s.number("beta2", o.beta2, 0, 0.999999);
    s.number("epsilon", o.epsilon, 0, 1, /*above=*/true);
  }
  if (o.kind != OptimizerKind::kAdamW) o.weight_decay = 0;  // a default only for AdamW
  if (o.kind == OptimizerKind::kAdam) {
    s.refuse({"weight_decay"}, kind);
  } else {
    s.number("weight_decay", o.weight_decay, 0, 1000);
  }
  const std::uint64_t schedule = o.schedule_steps ? o.schedule_steps : job.steps;
  if (s.good() && o.warmup_steps >= schedule) {
    s.wrong("warmup_steps", "warmup_steps must be below the schedule's " +
                                std::to_string(schedule) + " steps, is " +
                                std::to_string(o.warmup_steps));
  }
  s.finish();
}

void resolve_path(Section& s, const std::string& base, DataSpec& data) {
  if (!path_of_this_machine(s, "path", data.path, "a file or folder")) return;
  std::error_code error;
  fs::path path = fs::path(base.empty() ? "." : base) / data.path;  // an absolute one stays
  path = fs::absolute(path, error).lexically_normal();
  if (!error) data.path = path.string();
  const auto status = fs::status(path, error);  // an error also when nothing is there
  const bool pattern = status.type() == fs::file_type::not_found && is_pattern(data.path);
  if (pattern ? !data_files(data.path, {}) : bool(error))
    return s.wrong("path", "path must be a file or folder that can be read, is " +
                               shown(data.path) + " (" +
                               (pattern ? "no file matches" : error.message()) + ")");
  if (!pattern && !fs::is_directory(status) && !fs::is_regular_file(status))
    return s.wrong("path", "path must be a regular file or a folder, is " + shown(data.path));
  if (data.kind == DataKind::kClassified && !fs::is_regular_file(status))
    return s.wrong("path",
                   "path must be a file for kind \"classified\", is not: " + shown(data.path));
}

// Reads an application's data section: the files at its path are the application's matter.
void read_own_data(Section s, const std::string& base, DataSpec& data) {
  if (!s.there()) return;
  s.refuse({"kind", "extensions"}, "to a model of kind \"own\"");
  s.text("path", data.path, 4096, true);
  if (s.good()) resolve_path(s, base, data);
  s.finish();
}

void read_data(Section s, const std::string& base, const ModelSpec& model, DataSpec& data) {
  s.choice("kind", data.kind, kData, true);
  s.text("path", data.path, 4096, true);
  if (data.kind != DataKind::kClassified) {
    if (const toml::array* list = s.array("extensions", false, 64)) {
      for (const toml::node& node : *list) {
        const auto* value = node.as_string();
        const bool fine = value && value->get().size() <= 32 &&
                          (value->get().empty() || value->get().front() == '.') &&
                          value->get().find('/') == std::string::npos;
        if (!fine) return s.expected("extensions", node, "texts like \".h\", or \"\" for none");
        data.extensions.push_back(value->get());
      }
      std::sort(data.extensions.begin(), data.extensions.end());
      const auto end = std::unique(data.extensions.begin(), data.extensions.end());
      data.extensions.erase(end, data.extensions.end());
    }
  } else {
    s.refuse({"extensions"}, "to kind \"" + std::string(word_of(kData, int(data.kind))) + "\"");
  }
  if (s.good()) {
    const auto* gpt = std::get_if<GptSpec>(&model);
    if (gpt && data.kind == DataKind::kClassified)
      s.wrong("kind", "kind must be \"text\" or \"tokens\" for a gpt, is \"classified\"");
    if (!gpt && data.kind != DataKind::kClassified)
      s.wrong("kind", "kind must be \"classified\" for an mlp, is \"" +
                          std::string(word_of(kData, int(data.kind))) + "\"");
    if (gpt && data.kind == DataKind::kText && gpt->vocabulary != 256)
      s.wrong("kind", "kind \"text\" needs vocabulary = 256 in [model], is " +
                          std::to_string(gpt->vocabulary));
    if (gpt && data.kind == DataKind::kTokens && gpt->vocabulary > 65536)
      s.wrong("kind",
              "kind \"tokens\" holds 16-bit tokens and needs a vocabulary of at most 65536, is " +
                  std::to_string(gpt->vocabulary));
    if (s.good()) resolve_path(s, base, data);
  }
  s.finish();
}

void read_elastic(Section s, Job& job) {
  constexpr std::uint64_t kDay = 86'400'000;
  s.integer("lease_ms", job.lease_ms, 10, kDay);
  s.integer("state_timeout_ms", job.state_timeout_ms, 100, kDay);
  s.integer("coordinator_timeout_ms", job.coordinator_timeout_ms, 100, kDay);
  s.integer("start_timeout_ms", job.start_timeout_ms, 100, kDay);
  s.integer("standstill_steps", job.standstill_steps, 1, 1'000'000);
  s.integer("standstill_ms", job.standstill_ms, 0, kDay);
  if (s.good() && job.state_timeout_ms < job.lease_ms) {
    s.wrong("state_timeout_ms", "state_timeout_ms must be at least lease_ms (" +
                                    std::to_string(job.lease_ms) + "), is " +
                                    std::to_string(job.state_timeout_ms));
  }
  s.choice("shares", job.shares, kShares, false);
  s.choice("seal", job.seal, kSeals, false);
  s.boolean("ledger_events", job.ledger_events);
  s.integer("digest_every", job.digest_every, 0, kStepsMax);
  s.integer("recheck", job.recheck, 0, 1'000'000);
  s.choice("on_mismatch", job.on_mismatch, kMismatches, false);
  s.finish();
}

void read_checkpoint(Section s, const std::string& base, CheckpointSpec& checkpoint) {
  if (!s.there()) return;
  s.text("dir", checkpoint.dir, 4096, true);
  s.integer("every", checkpoint.every, 1, kStepsMax, true);
  s.integer("keep", checkpoint.keep, 1, 1000);
  s.hex("accepts", checkpoint.accepts);
  s.finish();
  if (!s.good() || !path_of_this_machine(s, "dir", checkpoint.dir, "a folder")) return;
  std::error_code error;
  const fs::path path = fs::absolute(fs::path(base.empty() ? "." : base) / checkpoint.dir, error);
  if (!error) checkpoint.dir = path.lexically_normal().string();
}

}  // namespace

Result<Job> parse_job(const std::string& toml, const std::string& base) {
  const auto parsed = toml::parse(std::string_view(toml));
  if (!parsed) {
    return Error(Code::kBadInput, shown(parsed.error().description(), kParserTextMax) + "; line " +
                                      std::to_string(parsed.error().source().begin.line) +
                                      ", expected TOML");
  }
  const toml::table& root = parsed.table();
  const std::vector<std::string> sections = {"job",  "model",   "optimizer",
                                             "data", "elastic", "checkpoint"};
  for (const auto& [key, node] : root) {
    if (std::find(sections.begin(), sections.end(), key.str()) != sections.end()) continue;
    return Error(Code::kBadInput, "unknown section `" + shown(key.str()) + "`, " +
                                      suggestion(key.str(), sections) + "; line " +
                                      std::to_string(node.source().begin.line));
  }
  Job job;
  std::optional<Error> failure;
  read_job(Section(root, "job", true, failure), job);
  read_model(Section(root, "model", true, failure), base, job);
  read_optimizer(Section(root, "optimizer", true, failure), job, job.optimizer);
  if (takes_data(job.model)) {
    read_data(Section(root, "data", true, failure), base, job.model, job.data);
  } else if (std::holds_alternative<OwnSpec>(job.model)) {
    read_own_data(Section(root, "data", false, failure), base, job.data);
  } else if (const toml::node* data = root.get("data"); data && !failure) {
    failure.emplace(Code::kBadInput, "section does not apply to a model of kind \"" +
                                         std::string(word_of(kModels, int(job.model.index()))) +
                                         "\"; [data], line " +
                                         std::to_string(data->source().begin.line));
  }
  read_elastic(Section(root, "elastic", false, failure), job);
  read_checkpoint(Section(root, "checkpoint", false, failure), base, job.checkpoint);
  if (failure) return std::move(*failure);
  return job;
}

Result<Job> load_job(const std::string& path) {
  const bool described = is_described_by_script(path);
  const std::string where = described ? "the job that the script describes" : "reading " + path;
  STARLING_TRY(is_file(path, "a job file (TOML)"));
  std::ifstream file(path, std::ios::binary);
  std::string text(kJobFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.is_open()) return Error(Code::kBadInput, "cannot be read; " + where);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kJobFileBytesMax)
    return Error(Code::kBadInput, "a job file has at most 1 MiB; " + where);
  auto job = parse_job(text, fs::path(path).parent_path().string());
  if (job) return job;
  if (!described) return std::move(job).error().in(where);
  const auto parsed = toml::parse(std::string_view(text));
  const auto script =
      parsed ? parsed.table()["model"]["script"].value<std::string>() : std::nullopt;
  return Error(job.error().code(), in_words_of_script(job.error().text()))
      .in(script.value_or(where));
}

}  // namespace starling
