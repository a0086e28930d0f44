#include "actors/make_model.h"

#include <utility>
#include <variant>

#include "actors/pretrained.h"
#include "actors/script/python_model.h"

namespace starling::actors {

Result<std::unique_ptr<kernels::Model>> make_model(const Job& job) {
  const auto* const spec = std::get_if<PythonSpec>(&job.model);
  if (spec == nullptr) {
    STARLING_TRY(model, kernels::make_model(job.model, job.isa, job.recompute));
    const bool trained = !weights_of(job.model).empty() && !lora_of(job.model).on();
    return trained ? with_weights(job.model, std::move(model)) : std::move(model);
  }
  STARLING_TRY(script, script::make_python_model(*spec, job.isa));
  return std::unique_ptr<kernels::Model>(std::move(script));
}

}  // namespace starling::actors
