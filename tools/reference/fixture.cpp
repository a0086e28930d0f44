#include "tools/reference/fixture.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace starling::reference {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kStepsMax = 1000, kMicroBatchesMax = 1024, kSequencesMax = 4096;

Error bad(const SafetensorsFile& file, const std::string& text) {
  return Error(Code::kBadInput, text + "; reference file " + file.path());
}

Result<Json> metadata_json(const SafetensorsFile& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end()) return bad(file, "no metadata " + key);
  Json value = Json::parse(it->second, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return bad(file, "metadata " + key + " is not JSON");
  return value;
}

Result<std::uint32_t> whole(const SafetensorsFile& file, const Json& hyper, const char* key,
                            std::uint64_t most) {
  const auto it = hyper.find(key);
  if (it == hyper.end() || !it->is_number_unsigned() || it->get<std::uint64_t>() > most)
    return bad(file, std::string("hyper.") + key + " is not a whole number of at most " +
                         std::to_string(most));
  return static_cast<std::uint32_t>(it->get<std::uint64_t>());
}

Result<double> number(const SafetensorsFile& file, const Json& hyper, const char* key) {
  const auto it = hyper.find(key);
  if (it == hyper.end() || !it->is_number())
    return bad(file, std::string("hyper.") + key + " is not a number");
  return it->get<double>();
}

Result<GptSpec> read_gpt(const SafetensorsFile& file, const Json& hyper) {
  constexpr std::uint64_t kMost = 1u << 20;
  GptSpec spec;
  STARLING_TRY(layers, whole(file, hyper, "layers", kMost));
  STARLING_TRY(heads, whole(file, hyper, "heads", kMost));
  STARLING_TRY(width, whole(file, hyper, "width", kMost));
  STARLING_TRY(context, whole(file, hyper, "context", kMost));
  STARLING_TRY(vocabulary, whole(file, hyper, "vocab", kMost));
  return GptSpec{layers, heads, width, context, vocabulary};
}

Result<MlpSpec> read_mlp(const SafetensorsFile& file, const Json& hyper) {
  MlpSpec spec;
  const auto it = hyper.find("sizes");
  if (it == hyper.end() || !it->is_array()) return bad(file, "hyper.sizes is not a list");
  for (const Json& size : *it) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > (1u << 20))
      return bad(file, "hyper.sizes holds something else than sizes");
    spec.sizes.push_back(size.get<std::uint32_t>());
  }
  if (spec.sizes.size() < 2) return bad(file, "hyper.sizes has fewer than two sizes");
  return spec;
}

// Reads the options that all optimizers of the file share.
Result<OptimizerSpec> read_schedule(const SafetensorsFile& file, const Json& hyper) {
  OptimizerSpec o;
  STARLING_TRY(warmup, whole(file, hyper, "warmup", kStepsMax));
  STARLING_TRY(floor, number(file, hyper, "lr_floor"));
  STARLING_TRY(clip, number(file, hyper, "clip"));
  STARLING_TRY(beta1, number(file, hyper, "beta1"));
  STARLING_TRY(beta2, number(file, hyper, "beta2"));
  STARLING_TRY(eps, number(file, hyper, "eps"));
  STARLING_TRY(decay, number(file, hyper, "weight_decay"));
  o.warmup_steps = warmup;
  o.floor = floor, o.clip = clip, o.beta1 = beta1, o.beta2 = beta2, o.epsilon = eps;
  o.weight_decay = decay;
  return o;
}

Result<std::vector<FixtureRun>> read_runs(const SafetensorsFile& file, const Json& hyper,
                                          bool gpt) {
  STARLING_TRY(common, read_schedule(file, hyper));
  if (gpt) {
    STARLING_TRY(rate, number(file, hyper, "lr"));
    common.peak_rate = rate;
    return std::vector<FixtureRun>{{"", common}};
  }
  OptimizerSpec sgd = common, adam = common;
  sgd.kind = OptimizerKind::kSgd;
  adam.kind = OptimizerKind::kAdam;
  STARLING_TRY(momentum, number(file, hyper, "momentum"));
  STARLING_TRY(sgd_rate, number(file, hyper, "sgd_lr"));
  STARLING_TRY(adam_rate, number(file, hyper, "adam_lr"));
  sgd.momentum = momentum;
  sgd.nesterov = hyper.value("nesterov", Json(true)) == Json(true);
  sgd.peak_rate = sgd_rate;
  adam.peak_rate = adam_rate;
  return std::vector<FixtureRun>{{"sgd.", sgd}, {"adam.", adam}};
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const auto d : shape) {
    if (text.size() > 1) text += ',';
    text += std::to_string(d);
  }
  return text += ']';
}

Result<> want_shape(const SafetensorsFile& file, const std::string& name,
                    const std::vector<std::uint64_t>& shape) {
  const SafetensorsEntry* entry = file.find(name);
  if (!entry) return bad(file, "no tensor " + name);
  if (entry->shape == shape) return ok();
  return bad(file, "tensor " + name + " has shape " + shape_text(entry->shape) + "; expected " +
                       shape_text(shape));
}

}  // namespace

Result<Fixture> open_fixture(const std::string& path) {
  STARLING_TRY(file, SafetensorsFile::open(path));
  STARLING_TRY(kind, metadata_json(file, "model"));
  STARLING_TRY(hyper, metadata_json(file, "hyper"));
  if (kind != "gpt2" && kind != "mlp") return bad(file, "model is neither gpt2 nor mlp");
  if (!hyper.is_object()) return bad(file, "metadata hyper is not an object");
  const bool gpt = kind == "gpt2";
  STARLING_TRY(steps, whole(file, hyper, "steps", kStepsMax));
  STARLING_TRY(micro_batches, whole(file, hyper, "micro", kMicroBatchesMax));
  STARLING_TRY(sequences, whole(file, hyper, "batch", kSequencesMax));
  if (steps == 0 || micro_batches == 0 || sequences == 0)
    return bad(file, "steps, micro or batch is 0");
  STARLING_TRY(runs, read_runs(file, hyper, gpt));
  ModelSpec model;
  if (gpt) {
    STARLING_TRY(spec, read_gpt(file, hyper));
    model = spec;
  } else {
    STARLING_TRY(spec, read_mlp(file, hyper));
    model = std::move(spec);
  }
  return Fixture{std::move(file), gpt ? "gpt2" : "mlp", std::move(model), steps, micro_batches,
                 sequences,       std::move(runs)};
}

Result<std::vector<Batch>> fixture_batches(const Fixture& fixture, std::uint32_t k) {
  const std::string prefix = "batch" + std::to_string(k) + ".";
  const auto* gpt = std::get_if<GptSpec>(&fixture.model);
  std::vector<Batch> batches(fixture.micro_batches);
  const auto deal = [&](auto member, const auto& values) {
    const auto each = static_cast<std::ptrdiff_t>(values.size() / batches.size());
    auto from = values.begin();
    for (Batch& b : batches) {
      b.sequences = fixture.sequences;
      (b.*member).assign(from, from + each);
      from += each;
    }
  };
  std::vector<std::uint64_t> shape{fixture.micro_batches, fixture.sequences};
  const std::string targets = prefix + (gpt ? "targets" : "y");
  if (gpt) shape.push_back(gpt->context);
  STARLING_TRY(want_shape(fixture.file, targets, shape));
  STARLING_TRY(wanted, fixture.file.ints(targets));
  deal(&Batch::targets, wanted);
  if (gpt) {
    STARLING_TRY(want_shape(fixture.file, prefix + "tokens", shape));
    STARLING_TRY(tokens, fixture.file.ints(prefix + "tokens"));
    deal(&Batch::tokens, tokens);
    return batches;
  }
  shape.push_back(std::get<MlpSpec>(fixture.model).sizes.front());
  STARLING_TRY(want_shape(fixture.file, prefix + "x", shape));
  STARLING_TRY(x, fixture.file.floats(prefix + "x"));
  deal(&Batch::x, x);
  return batches;
}

Result<std::vector<float>> fixture_state(const Fixture& fixture, const Layout& layout,
                                         const std::string& prefix) {
  std::vector<float> flat(layout.elements());
  for (const TensorPlace& place : layout.tensors()) {
    STARLING_TRY(want_shape(fixture.file, prefix + place.spec.name, place.spec.shape));
    STARLING_TRY(values, fixture.file.floats(prefix + place.spec.name));
    std::copy(values.begin(), values.end(),
              flat.begin() + static_cast<std::ptrdiff_t>(std::size_t{place.first_block} * kBlock));
  }
  return flat;
}

}  // namespace starling::reference
