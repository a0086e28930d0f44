// parse_job and read_job: from a job file to a checked Job.

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/data_files.h"
#include "core/base/file_system.h"
#include "core/base/named_path.h"
#include "core/base/s3_place.h"
#include "core/base/step_record.h"
#include "core/job/identity_reader.h"
#include "core/job/job.h"
#include "core/job/lora_reader.h"
#include "core/job/models/brought.h"
#include "core/job/moved_job.h"
#include "core/job/optimizer_reader.h"
#include "core/job/script_words.h"
#include "core/job/section.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using namespace job_words;

constexpr std::uint64_t kJobFileBytesMax = 1 << 20;
constexpr std::size_t kParserTextMax = 240;  // what the TOML library says of a mistake

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

// The keys of a kind of model are those that its reader asks for.
std::vector<std::string> model_keys(ModelSpec model) {
  const toml::table nothing;
  std::optional<Error> failure;
  Section section(nothing, "model", false, failure);
  std::visit([&](auto& spec) { spec.read(section, Job{}, ""); }, model);
  return section.known();
}

void read_model(Section s, const std::string& base, Job& job) {
  const std::vector<ModelSpec> kinds = all_kinds();
  std::vector<Choice> words;
  for (const ModelSpec& kind : kinds)
    words.push_back({kind_of(kind).word, static_cast<int>(words.size())});
  std::size_t chosen = 0;
  s.choice("kind", chosen, words, true);
  job.model = kinds[chosen];
  const std::string why = "to kind \"" + std::string(kind_of(job.model).word) + "\"";
  const auto own_keys = model_keys(job.model);
  for (const ModelSpec& other : kinds)
    for (const std::string& key : model_keys(other))
      if (std::ranges::find(own_keys, key) == own_keys.end()) s.refuse({key.c_str()}, why);
  std::visit([&](auto& spec) { spec.read(s, job, base); }, job.model);
  s.finish();
}

// Returns whether the path is an address of a bucket, which is written as all addresses are then.
bool is_bucket(Section& s, const char* key, std::string& path) {
  if (!s3::is_place(path)) return false;
  auto place = s3::parse_place(path);
  if (place)
    path = place.value().text();
  else
    s.wrong(key, place.error().text());
  return true;
}

void resolve_path(Section& s, const std::string& base, DataSpec& data) {
  if (data.order == DataOrder::kLanes && is_bucket(s, "path", data.path)) return;
  if (s3::is_place(data.path))
    return s.wrong("path", "path must be a file or folder of this machine, is " + shown(data.path) +
                               ": of a bucket, shards are read (starling shard), with kind = "
                               "\"tokens\" and order = \"lanes\"");
  if (!path_of_this_machine(s, "path", data.path, "a file or folder")) return;
  std::error_code error;
  fs::path path = fs::path(base.empty() ? "." : base) / data.path;  // an absolute one stays
  path = named_path(path, error);
  if (!error) data.path = path.string();
  const auto status = fs::status(path, error);  // an error also when nothing is there
  const bool pattern = status.type() == fs::file_type::not_found && is_pattern(data.path);
  if (pattern ? !data_files(data.path, {}) : bool(error))
    return s.wrong("path", "path must be a file or folder that can be read, is " +
                               shown(data.path) + " (" +
                               (pattern ? "no file matches" : error.message()) + ")");
  if (!pattern && !fs::is_directory(status) && !fs::is_regular_file(status))
    return s.wrong("path", "path must be a regular file or a folder, is " + shown(data.path));
  if (data.order == DataOrder::kLanes && !fs::is_directory(status))
    return s.wrong("path", "path must be a folder with an index.json for order \"lanes\", is " +
                               shown(data.path));
  if (data.kind == DataKind::kClassified && !fs::is_regular_file(status))
    return s.wrong("path",
                   "path must be a file for kind \"classified\", is not: " + shown(data.path));
}

// Reads an application's data section: the files at its path are the application's matter.
void read_own_data(Section s, const std::string& base, const std::string& moved, DataSpec& data) {
  if (!s.there()) return;
  s.refuse({"kind", "extensions", "order", "cache", "cache_bytes"}, "to a model of kind \"own\"");
  s.text("path", data.path, 4096, true);
  if (!moved.empty()) data.path = moved;
  if (s.good()) resolve_path(s, base, data);
  s.finish();
}

void read_order(Section& s, DataSpec& data) {
  s.choice("order", data.order, kOrders, false);
  if (data.order != DataOrder::kLanes)
    return s.refuse({"cache", "cache_bytes"}, "to order \"global\"");
  s.text("cache", data.cache, 4096, false);
  if (!data.cache.empty() && data.cache.front() != '/')
    s.wrong("cache", "cache must be the whole path of a folder on each worker's disk, is " +
                         shown(data.cache));
  if (data.cache.empty())
    s.refuse({"cache_bytes"}, "without cache");
  else
    s.integer("cache_bytes", data.cache_bytes, std::uint64_t{1} << 20, std::uint64_t{1} << 50);
}

void read_data(Section s, const std::string& base, const std::string& moved, const ModelSpec& model,
               DataSpec& data) {
  s.choice("kind", data.kind, kData, true);
  s.text("path", data.path, 4096, true);
  if (!moved.empty()) data.path = moved;
  if (data.kind == DataKind::kTokens)
    read_order(s, data);
  else
    s.refuse({"order", "cache", "cache_bytes"},
             "to kind \"" + std::string(word_of(kData, int(data.kind))) + "\"");
  if (data.order == DataOrder::kLanes) {
    s.refuse({"extensions"}, "to order \"lanes\"");
  } else if (data.kind != DataKind::kClassified) {
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
    const ModelInput input = *input_of(model);
    const bool classified = data.kind == DataKind::kClassified;
    if (input.tokens() == classified)
      s.wrong("kind", std::string("kind must be ") +
                          (classified ? "\"text\" or \"tokens\"" : "\"classified\"") + " for " +
                          kind_of(model).with_article + ", is \"" +
                          std::string(word_of(kData, int(data.kind))) + "\"");
    if (data.kind == DataKind::kText && input.vocabulary != 256)
      s.wrong("kind", "kind \"text\" needs vocabulary = 256 in [model], is " +
                          std::to_string(input.vocabulary));
    if (s.good()) resolve_path(s, base, data);
  }
  s.finish();
}

void read_numbers(Section s, NumbersSpec& numbers) {
  if (!s.there()) return;
  s.integer("grid_bits", numbers.grid_bits, kGridBitsMin, kGridBitsMax, /*required=*/true);
  // Few bits make zeros of what is small, step after step, unless it is rounded up as often as it should be.
  if (numbers.grid_bits <= kStochasticBitsMax) numbers.rounding = GridRounding::kStochastic;
  s.choice("rounding", numbers.rounding, kGridRoundings, false);
  if (s.good() && numbers.rounding == GridRounding::kStochastic &&
      numbers.grid_bits > kStochasticBitsMax)
    s.wrong("rounding", "rounding is \"stochastic\" with grid_bits of at most " +
                            std::to_string(kStochasticBitsMax) + ", of which are " +
                            std::to_string(numbers.grid_bits));
  s.finish();
}

void read_elastic(Section s, ElasticSpec& elastic) {
  constexpr std::uint64_t kDay = 86'400'000;
  s.integer("lease_ms", elastic.lease_ms, 10, kDay);
  s.integer("state_timeout_ms", elastic.state_timeout_ms, 100, kDay);
  s.integer("coordinator_timeout_ms", elastic.coordinator_timeout_ms, 100, kDay);
  s.integer("start_timeout_ms", elastic.start_timeout_ms, 100, kDay);
  s.integer("standstill_steps", elastic.standstill_steps, 1, 1'000'000);
  s.integer("standstill_ms", elastic.standstill_ms, 0, kDay);
  if (s.good() && elastic.state_timeout_ms < elastic.lease_ms) {
    s.wrong("state_timeout_ms", "state_timeout_ms must be at least lease_ms (" +
                                    std::to_string(elastic.lease_ms) + "), is " +
                                    std::to_string(elastic.state_timeout_ms));
  }
  s.integer("slowest", elastic.slowest, 0, 1'000'000);
  s.choice("shares", elastic.shares, kShares, false);
  s.choice("seal", elastic.seal, kSeals, false);
  s.boolean("ledger_events", elastic.ledger_events);
  s.integer("digest_every", elastic.digest_every, 0, kStepsMax);
  s.integer("recheck", elastic.recheck, 0, 1'000'000);
  s.choice("on_mismatch", elastic.on_mismatch, kMismatches, false);
  s.finish();
}

void read_checkpoint(Section s, const std::string& base, CheckpointSpec& checkpoint) {
  if (!s.there()) return;
  s.text("dir", checkpoint.dir, 4096, true);
  s.integer("every_seconds", checkpoint.every_seconds, 1, 1'000'000);
  s.integer("every", checkpoint.every, 1, kStepsMax, /*required=*/checkpoint.every_seconds == 0);
  if (checkpoint.every == 0) checkpoint.every = kCheckpointsByTime;
  s.integer("keep", checkpoint.keep, 1, 1000);
  s.boolean("tended", checkpoint.tended);
  s.hex("accepts", checkpoint.accepts);
  s.finish();
  if (!s.good()) return;
  if (is_bucket(s, "dir", checkpoint.dir)) return;
  if (!path_of_this_machine(s, "dir", checkpoint.dir, "s3://BUCKET/PREFIX or a folder")) return;
  std::error_code error;
  const fs::path path = named_path(fs::path(base.empty() ? "." : base) / checkpoint.dir, error);
  if (!error) checkpoint.dir = path.string();
}

void read_evaluate(Section s, const std::string& base, Job& job) {
  if (!s.there()) return;
  EvaluateSpec& e = job.evaluate;
  const bool script = kind_of(job.model).is_script;
  const std::string why = "to a model of kind \"" + std::string(kind_of(job.model).word) + "\"";
  if (!script && !input_of(job.model))
    s.refuse({"path", "samples", "every", "batches", "metrics"}, why);
  if (script)
    s.refuse({"path"}, why);
  else
    s.refuse({"samples", "metrics"}, why);
  s.integer("every", e.every, 1, kStepsMax, true);
  s.integer("batches", e.batches, 1, kHeldOutMax);
  if (script) {
    s.integer("samples", e.samples, 1, kSamplesMax, true);
    e.metrics = read_metrics(s);
  } else {
    s.text("path", e.path, 4096, true);
    DataSpec data = job.data;
    data.path = e.path;
    data.order = DataOrder::kGlobal;
    if (s.good()) resolve_path(s, base, data);
    e.path = data.path;
  }
  s.finish();
}

// `moved` is the path of [data], unless it is empty.
Result<Job> parse(const std::string& toml, const std::string& base, const std::string& moved) {
  const auto parsed = toml::parse(std::string_view(toml));
  if (!parsed) {
    return Error(Code::kBadInput, shown(parsed.error().description(), kParserTextMax) + "; line " +
                                      std::to_string(parsed.error().source().begin.line) +
                                      ", expected TOML");
  }
  const toml::table& root = parsed.table();
  const std::vector<std::string> sections = {"job",        "model",    "lora",    "optimizer",
                                             "local",      "numbers",  "data",    "elastic",
                                             "checkpoint", "evaluate", "identity"};
  for (const auto& [key, node] : root) {
    if (std::find(sections.begin(), sections.end(), key.str()) != sections.end()) continue;
    return Error(Code::kBadInput, "unknown section `" + shown(key.str()) + "`, " +
                                      suggestion(key.str(), sections) + "; line " +
                                      std::to_string(node.source().begin.line));
  }
  Job job;
  std::optional<Error> failure;
  read_job(Section(root, "job", true, failure), job);
  if (!failure && lacks_base(root))
    failure.emplace(Code::kBadInput, kLacksBase + std::string("; [lora], line ") +
                                         std::to_string(root.get("lora")->source().begin.line));
  read_model(Section(root, "model", true, failure), base, job);
  read_lora(Section(root, "lora", false, failure), job);
  read_local(Section(root, "local", false, failure), job);
  read_optimizer(Section(root, "optimizer", true, failure), job);
  if (input_of(job.model)) {
    read_data(Section(root, "data", true, failure), base, moved, job.model, job.data);
  } else if (kind_of(job.model).may_bring_data) {
    read_own_data(Section(root, "data", false, failure), base, moved, job.data);
  } else if (const toml::node* data = root.get("data"); data && !failure) {
    failure.emplace(Code::kBadInput, "section does not apply to a model of kind \"" +
                                         std::string(kind_of(job.model).word) +
                                         "\"; [data], line " +
                                         std::to_string(data->source().begin.line));
  }
  read_numbers(Section(root, "numbers", false, failure), job.numbers);
  read_elastic(Section(root, "elastic", false, failure), job.elastic);
  read_checkpoint(Section(root, "checkpoint", false, failure), base, job.checkpoint);
  read_evaluate(Section(root, "evaluate", false, failure), base, job);
  read_identity(Section(root, "identity", false, failure), base, job.identity);
  if (failure) return std::move(*failure);
  return job;
}

}  // namespace

Result<Job> parse_job(const std::string& toml, const std::string& base) {
  return parse(toml, base, "");
}

Result<Job> parse_moved_job(const std::string& toml, const std::string& data) {
  return parse(toml, "/", data);
}

Result<Job> read_job(const std::string& path) {
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
