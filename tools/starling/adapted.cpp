#include "tools/starling/adapted.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "actors/make_model.h"
#include "actors/pretrained.h"
#include "core/formats/safetensors.h"
#include "core/job/models/adapter_config.h"
#include "core/job/models/published_model.h"
#include "kernels/cpu/table.h"
#include "kernels/models/adapters.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

std::string name_in_file(const ModelSpec& spec, const TensorSpec& tensor) {
  return kAdapterPrefix + actors::prefix_of(spec) + tensor.name;
}

std::string place_of(const std::string& folder) {
  return (fs::path(folder) / kAdapterFile).string();
}

// Whether a file has the adapters of a model, and nothing else. Errors: a tensor is missing, has another shape, or is one
// too many.
Result<> check_adapters(const SafetensorsFile& file, const ModelSpec& spec,
                        const std::vector<TensorSpec>& tensors) {
  std::set<std::string> names;
  for (const TensorSpec& tensor : tensors) {
    const std::string name = name_in_file(spec, tensor);
    const SafetensorsEntry* const entry = file.find(name);
    if (entry == nullptr)
      return bad_input("has no tensor " + name + ", which its config says to be there; " +
                       file.path());
    if (entry->shape != tensor.shape)
      return bad_input("tensor " + name + " does not fit its base and rank; " + file.path());
    names.insert(name);
  }
  for (const SafetensorsEntry& entry : file.tensors())
    if (!names.contains(entry.name))
      return bad_input("has the tensor " + entry.name +
                       ", which is of no module that is adapted here; " + file.path());
  return ok();
}

// These, flat in the layout.
Result<std::vector<float>> read_adapters(const SafetensorsFile& file, const ModelSpec& spec,
                                         const Layout& layout) {
  std::vector<float> adapters(layout.elements());
  for (const TensorPlace& place : layout.tensors()) {
    STARLING_TRY(file.floats(*file.find(name_in_file(spec, place.spec)), 0,
                             std::span(adapters).subspan(std::size_t{place.first_block} * kBlock,
                                                         place.spec.elements())));
  }
  return adapters;
}

}  // namespace

Result<WholeModel> merge(const ModelSpec& spec, const Layout& layout,
                         std::span<const float> adapters, const std::string& isa) {
  STARLING_TRY(kernels, kernels::kernel_table(isa));
  WholeModel whole{.spec = without_lora(spec)};
  Job job;
  job.model = whole.spec;
  job.isa = isa;
  STARLING_TRY(model, actors::make_model(job));
  // Before memory is taken for what may be no such model.
  STARLING_TRY(fitted, actors::fitted_weights(whole.spec, model->tensors()));
  if (const std::string& expected = lora_of(spec).base; !expected.empty()) {
    STARLING_TRY(digest, actors::digest_of(fitted.weights, spec));
    if (to_string(digest) != expected)
      return bad_input("the weights " + fitted.weights.path() +
                       " are not those that were adapted: their digest is " + to_string(digest) +
                       ", that of those " + expected);
  }
  whole.layout = std::make_unique<Layout>(model->tensors());
  whole.parameters.resize(whole.layout->elements());
  STARLING_TRY(model->initialise(/*seed=*/0, *whole.layout, whole.parameters));
  kernels::merge_adapters(spec, *kernels, layout, adapters, *whole.layout, whole.parameters);
  return whole;
}

Result<std::string> base_of_adapter(const std::string& folder, const std::string& base) {
  STARLING_TRY(config, read_adapter_config(folder));
  const std::string& place = base.empty() ? config.base : base;
  std::error_code error;
  if (!place.empty() && fs::exists(place, error)) return place;
  return bad_input("the weights that are adapted are not at " + shown_json(place) +
                   ", and nothing is downloaded here; --base says where they are; " + folder);
}

Result<WholeModel> read_adapted(const std::string& folder, const std::string& base,
                                const std::string& isa) {
  STARLING_TRY(adapter, read_adapter_config(folder));
  STARLING_TRY(place, base_of_adapter(folder, base));
  STARLING_TRY(config, PublishedConfig::read(place));
  auto spec = published_model(config, place);
  if (!spec) return std::move(spec).error().in("the config.json of " + place);
  STARLING_TRY(file, SafetensorsFile::open(place_of(folder)));
  const auto known = file.metadata().find(kBaseKey);
  if (known != file.metadata().end()) adapter.lora.base = known->second;
  std::visit(
      [&](auto& kind) {
        if constexpr (requires { kind.lora; }) kind.lora = adapter.lora;
      },
      spec.value());
  Job job;
  job.model = spec.value();
  job.isa = isa;
  STARLING_TRY(model, actors::make_model(job));
  // Before memory is taken for what may be no such model.
  STARLING_TRY(actors::check_weights(job, *model));
  STARLING_TRY(check_adapters(file, spec.value(), model->tensors()));
  const Layout layout(model->tensors());
  STARLING_TRY(adapters, read_adapters(file, spec.value(), layout));
  return merge(spec.value(), layout, adapters, isa);
}

}  // namespace starling::tools
