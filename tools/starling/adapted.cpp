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

std::string place_of(const std::string& folder) {
  return (fs::path(folder) / kAdapterFile).string();
}

// The adapters of a file, flat in the layout. Errors: a tensor is missing, has another shape, or is one too many.
Result<std::vector<float>> read_adapters(const SafetensorsFile& file, const ModelSpec& spec,
                                         const Layout& layout) {
  std::vector<float> adapters(layout.elements());
  std::set<std::string> names;
  const std::string prefix = kAdapterPrefix + actors::prefix_of(spec);
  for (const TensorPlace& place : layout.tensors()) {
    const std::string name = prefix + place.spec.name;
    const SafetensorsEntry* const entry = file.find(name);
    if (entry == nullptr)
      return bad_input("has no tensor " + name + ", which its config says to be there; " +
                       file.path());
    if (entry->shape != place.spec.shape)
      return bad_input("tensor " + name + " does not fit its base and rank; " + file.path());
    STARLING_TRY(file.floats(*entry, 0,
                             std::span(adapters).subspan(std::size_t{place.first_block} * kBlock,
                                                         place.spec.elements())));
    names.insert(name);
  }
  for (const SafetensorsEntry& entry : file.tensors())
    if (!names.contains(entry.name))
      return bad_input("has the tensor " + entry.name + ", which its config does not name; " +
                       file.path());
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
    STARLING_TRY(digest, fitted.weights.digest(actors::prefix_of(spec)));
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
  return bad_input("the weights that are adapted are not at \"" + place +
                   "\", and nothing is downloaded here; --base says where they are; " + folder);
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
  const Layout layout(model->tensors());
  STARLING_TRY(adapters, read_adapters(file, spec.value(), layout));
  return merge(spec.value(), layout, adapters, isa);
}

}  // namespace starling::tools
