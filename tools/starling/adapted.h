#pragma once
// A model of weights that were published and adapters of them, as one.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::tools {

inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
inline constexpr const char* kBaseKey = "starling_base";  // metadata of such a file: LoraSpec::base

struct WholeModel {
  ModelSpec spec;  // has no adapters, and the place of the base
  std::unique_ptr<Layout> layout;
  std::vector<float> parameters;  // flat in the layout
};

// Reads the base of a spec with adapters, and adds these to it; `adapters`: flat in the layout. `isa`: computes.
// Errors: kBadInput  the base is not there, does not fit, or is another one than LoraSpec::base says, if it says one.
Result<WholeModel> merge(const ModelSpec& spec, const Layout& layout,
                         std::span<const float> adapters, const std::string& isa);

// Where the base of an adapter's folder lies: `base`, or where none is given as the adapter says. Errors: kBadInput
// the folder has no adapters that are computed here, or nothing is there.
Result<std::string> base_of_adapter(const std::string& folder, const std::string& base);
// Reads the adapters of a folder that Starling or peft has written, and merges them. Errors: as above; kBadInput  the
// adapters do not fit the base.
Result<WholeModel> read_adapted(const std::string& folder, const std::string& base,
                                const std::string& isa);

}  // namespace starling::tools
