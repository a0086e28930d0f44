#pragma once
// [model].from: a model whose first parameters others have trained. A spec of such a family has
//   from                               the path, of this machine
//   Spec::published(config)            the model that a config.json describes; its context is the longest that
//                                      it and this build have
//   Spec::kModelTypes                  the model_type of these
//   misfit(there)                      the first field that the job file has otherwise
//   Spec::published_name(tensor)       how files call a tensor of this name
//   config_text(end)                   its config.json, as transformers reads it; end: the token that ends a document

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/named_path.h"
#include "core/job/models/published_config.h"
#include "core/job/models/published_model.h"
#include "core/job/section.h"

namespace starling {

// A field of a job, and what the config.json of the weights has there, as texts.
struct Field {
  const char* key;
  std::string job, there;
  bool at_most = false;  // the job may have less
};

// The key of a field that does not fit, and why.
struct Misfit {
  std::string key, why;
};

inline Misfit misfit_of(const Field& field) {
  return {field.key, std::string(field.key) + " must be " + (field.at_most ? "at most " : "") +
                         field.there + " as in the config.json of from, is " + field.job};
}

// Whether files may have a tensor of this name, without their prefix, which is no parameter of the model: a head that is
// the embedding, masks of attention and angles of positions, as older files have them.
inline bool is_spare(const GptSpec&, std::string_view name) {
  return name == "lm_head.weight" || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}
inline bool is_spare(const LlamaSpec& spec, std::string_view name) {
  return (spec.tied_embeddings && name == "lm_head.weight") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// PretrainedWeights::digest() of the weights of a spec that has some.
template <class Weights, class Spec>
auto digest_of_weights(const Weights& weights, const Spec& spec) {
  return weights.digest(Spec::published_name(""),
                        [&](std::string_view name) { return is_spare(spec, name); });
}

// Spec::published() of a config.json of the family. Errors: another model_type, or as that.
template <class Spec>
Result<Spec> published_as(const PublishedConfig& config) {
  if (std::ranges::find(Spec::kModelTypes, config.model_type()) != std::end(Spec::kModelTypes))
    return Spec::published(config);
  std::string known;
  for (const std::string_view type : Spec::kModelTypes)
    known += (known.empty() ? "\"" : ", \"") + std::string(type) + "\"";
  const auto other = published_model(config, "/");
  return bad_input(
      "its model_type is \"" + job_words::shown(config.model_type()) + "\", expected " + known +
      (other ? ": it is a model of kind = \"" + std::string(kind_of(other.value()).word) + "\""
             : ""));
}

namespace job_words {

// Reads `from`. Where it is given and one of `keys` is not, takes the spec from the config.json of the weights, for
// the other fields to be read over it. Returns that one, for misfit(). A job that says all, as coordinators hand it
// to workers, needs no file to be read.
template <class Spec>
std::optional<Spec> read_from(Section& s, const std::string& base,
                              std::initializer_list<const char*> keys, Spec& spec) {
  s.text("from", spec.from, 4096, false);
  bool all = true;
  for (const char* const key : keys) all = s.has(key) && all;
  if (spec.from.empty() || !s.good() ||
      !path_of_this_machine(s, "from", spec.from, "a file or folder"))
    return std::nullopt;
  std::error_code error;
  const auto path = named_path(std::filesystem::path(base.empty() ? "." : base) / spec.from, error);
  if (!error) spec.from = path.string();
  if (all) return std::nullopt;
  const auto config = PublishedConfig::read(spec.from);
  if (!config) {
    s.wrong("from", config.error().text());
    return std::nullopt;
  }
  auto there = published_as<Spec>(config.value());
  if (!there) {
    s.wrong("from", std::move(there).error().in("the config.json of " + spec.from).text());
    return std::nullopt;
  }
  there.value().from = spec.from;
  spec = there.value();
  return std::move(there).value();
}

inline void check_size(Section& s, std::uint64_t parameters, const char* key) {
  if (parameters > kParametersMax)
    s.wrong(key, "the model must have at most 2^36 parameters, has " + std::to_string(parameters));
}

inline void check_tokens(Section& s, const Job& job, std::uint32_t context) {
  const std::uint64_t tokens = std::uint64_t{job.micro_batch_sequences} * context;
  if (tokens > kMicroBatchTokensMax)
    s.wrong("context",
            "a micro-batch must have at most 2^26 tokens (sequences times context), has " +
                std::to_string(tokens));
}

}  // namespace job_words
}  // namespace starling
