#pragma once
// GPT-2.

#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/job/models/kind.h"
#include "core/job/models/lora.h"

namespace starling {

class PublishedConfig;
struct Misfit;

struct GptSpec {
  static constexpr ModelKind kKind{
      .word = "gpt", .with_article = "a gpt", .computed_by_kernels = true};

  std::uint32_t layers = 4, heads = 4, width = 128, context = 128, vocabulary = 256;
  // The weights that training begins with (core/formats/pretrained.h), of this machine: a relative path is
  // relative to the job file. Empty: drawn from the seed. The fingerprint has their bits, no hash has the path.
  std::string from;
  LoraSpec lora;

  static constexpr std::string_view kModules[] = {"attn.c_attn", "attn.c_proj", "mlp.c_fc",
                                                  "mlp.c_proj"};
  static constexpr std::string_view kLoraTargets[] = {"c_attn"};
  static constexpr bool kFanInFanOut = true;

  ModelInput input() const { return {context, 0, vocabulary, vocabulary}; }
  void read(job_words::Section& section, const Job& job, const std::string& base);
  void write(std::ostream& out) const;
  void drop_idle();
  bool operator==(const GptSpec&) const = default;

  static constexpr std::string_view kModelTypes[] = {"gpt2"};
  // from_weights.h. Errors of published(): kBadInput  another model_type, a member that is no such number, or a choice
  // that computes otherwise than GPT-2 here does: another activation, epsilon or width of the feed-forward part,
  // attention scaled by layer or not at all, cross attention, a head that is not tied.
  static Result<GptSpec> published(const PublishedConfig& config);
  std::optional<Misfit> misfit(const GptSpec& there) const;
  std::string config_text(std::optional<std::uint32_t> end_token) const;
  static std::string published_name(const std::string& tensor) { return "transformer." + tensor; }
};

}  // namespace starling
