#pragma once
// Unicode's canonical composition (NFC, UAX #15): one form for what can be written in several.

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace starling {

// The text in NFC; `utf8` is UTF-8. `storage` has it where it is another one, else the result is `utf8` itself.
// Errors: kInternal  there is no memory for it.
Result<std::string_view> composed(std::string_view utf8, std::string& storage);

}  // namespace starling
