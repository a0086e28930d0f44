#include "core/job/models/published_model.h"

#include <optional>
#include <utility>

#include "core/job/section.h"

namespace starling {
namespace {

template <class Spec>
concept IsPublished = requires(const PublishedConfig& config) {
  Spec::published(config);
};

}  // namespace

Result<ModelSpec> published_model(const PublishedConfig& config, const std::string& from) {
  std::optional<Result<ModelSpec>> made;
  std::string known;
  const auto ask = [&]<IsPublished Spec>(const Spec&) {
    for (const std::string_view type : Spec::kModelTypes) {
      known += (known.empty() ? "\"" : ", \"") + std::string(type) + "\"";
      if (config.model_type() != type) continue;
      auto spec = Spec::published(config);
      if (spec) spec.value().from = from;
      if (spec)
        made = ModelSpec(std::move(spec).value());
      else
        made = std::move(spec).error();
    }
  };
  for (const ModelSpec& kind : all_kinds())
    std::visit(
        [&](const auto& spec) {
          if constexpr (requires { ask(spec); }) ask(spec);
        },
        kind);
  if (made) return std::move(*made);
  return bad_input("its model_type is \"" + job_words::shown(config.model_type()) +
                   "\", expected one of " + known);
}

}  // namespace starling
