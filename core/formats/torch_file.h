#pragma once
// A file of torch.save(): a zip archive with the pickle of a state_dict and a member for each storage.

#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/formats/safetensors.h"

namespace starling {

// Whether the file begins as a file of torch.save() does, of this form or of the one before torch 1.6.
bool is_torch_file(const std::string& path);

// Its tensors, to be read as those of a safetensors file, whose metadata it has not. Nothing in it is run.
// Errors: kBadInput  not readable, of the form before torch 1.6, numbers of another byte order, a storage that is
// missing or too short, or as stored_members() and parse_state_dict(); the text names the file.
Result<SafetensorsFile> open_torch_file(const std::string& path);
Result<SafetensorsFile> open_torch_file(std::unique_ptr<const StoredObject> object);

}  // namespace starling
