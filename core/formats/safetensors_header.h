#pragma once
// The JSON header of a safetensors file, apart from the file: text in, entries out.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/safetensors.h"

namespace starling {

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> tensors;  // by offset
};

// `text` without the length before it; `data_bytes` is what follows it in the file.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::uint64_t data_bytes);

// Length and header, padded so that the data begins at a multiple of 8. Entries as given.
Result<Bytes> format_safetensors_header(const SafetensorsHeader& header);

}  // namespace starling
