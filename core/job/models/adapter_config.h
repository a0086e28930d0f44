#pragma once
// adapter_config.json: what peft writes beside adapters, which lie in adapter_model.safetensors.

#include <string>

#include "core/base/result.h"
#include "core/job/models/published_config.h"
#include "core/job/models/table.h"

namespace starling {

// Before the name of a module in files of adapters; that of files of the base follows.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

struct AdapterConfig {
  std::string base;  // folder of the weights that are adapted; a relative one is one of the process
  LoraSpec lora;     // without base, and targets as they are written
};

// Whether the adapted weights of a model are [in, out], as peft calls it.
bool is_fan_in_fan_out(const ModelSpec& spec);
// Whether a folder has such a file.
bool is_adapter(const std::string& folder);
// Errors: kBadInput  it cannot be read, is none of LoRA, or has a choice that computes otherwise than adapters do here:
// ranks or scales of some modules, other scales, biases, whole modules; the text names the file.
Result<AdapterConfig> read_adapter_config(const std::string& folder);
// That of a model with adapters, as peft reads it.
std::string adapter_config_text(const ModelSpec& spec);

}  // namespace starling
