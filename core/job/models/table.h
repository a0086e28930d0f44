#pragma once
// The kinds of models, and what every place may ask of any of them; kind.h says what a kind has.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/job/models/gpt.h"
#include "core/job/models/llama.h"
#include "core/job/models/mlp.h"
#include "core/job/models/own.h"
#include "core/job/models/python.h"
#include "core/job/models/synthetic.h"

namespace starling {

using ModelSpec = std::variant<GptSpec, LlamaSpec, MlpSpec, SyntheticSpec, PythonSpec, OwnSpec>;

// One of each kind, as it is where the job file says nothing.
inline std::vector<ModelSpec> all_kinds() {
  return []<class... Kinds>(std::variant<Kinds...>*) {
    return std::vector<ModelSpec>{Kinds{}...};
  }(static_cast<ModelSpec*>(nullptr));
}

inline const ModelKind& kind_of(const ModelSpec& model) {
  return std::visit([](const auto& spec) -> const ModelKind& { return spec.kKind; }, model);
}

// What the model takes of [data]; none: it has no such section.
inline std::optional<ModelInput> input_of(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> std::optional<ModelInput> {
        if constexpr (requires { spec.input(); })
          return spec.input();
        else
          return std::nullopt;
      },
      model);
}

// The weights that training begins with; empty: none, or a model that has none.
inline std::string weights_of(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> std::string {
        if constexpr (requires { spec.from; })
          return spec.from;
        else
          return {};
      },
      model);
}
inline void set_weights(ModelSpec& model, const std::string& path) {
  std::visit(
      [&](auto& spec) {
        if constexpr (requires { spec.from; }) spec.from = path;
      },
      model);
}

// Its adapters; not on(): none, or of a kind that has none.
inline LoraSpec lora_of(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> LoraSpec {
        if constexpr (requires { spec.lora; })
          return spec.lora;
        else
          return {};
      },
      model);
}
// The same model without adapters: all of its weights are parameters.
inline ModelSpec without_lora(ModelSpec model) {
  std::visit(
      [](auto& spec) {
        if constexpr (requires { spec.lora; }) spec.lora = {};
      },
      model);
  return model;
}

// Names of what passes measure beside the loss (MicroBatchResult::metrics); at most kMetricsMax.
inline std::vector<std::string> metric_names(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> std::vector<std::string> {
        if constexpr (requires { spec.metrics; })
          return spec.metrics;
        else
          return {};
      },
      model);
}

}  // namespace starling
