#pragma once
// What S3's answers say in XML. The texts come from outside: nothing in them is believed but what is asked
// for, and nothing is expanded but the five entities and numbers.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace starling::s3 {

// Returns the texts between <NAME> and </NAME> that hold no element, in order; of an answer without
// such none. Errors: kCorrupt  it is no XML as stores write it.
Result<std::vector<std::string>> texts_of(std::string_view xml, const std::string& name);
// The first of them.
std::optional<std::string> text_of(std::string_view xml, const std::string& name);

// The reverse of percent-encoding, as list answers have with encoding-type=url ('+' is a space).
// None: a '%' without two digits.
std::optional<std::string> decoded(std::string_view text);

}  // namespace starling::s3
