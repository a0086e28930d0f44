#pragma once
// UTF-8: no surrogates, nothing above U+10FFFF, no longer form than needed.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace starling {

// The first byte of `text` that is not UTF-8; nothing if all is.
std::optional<std::size_t> not_utf8(std::string_view text);

// The text with U+FFFD in the place of what is not UTF-8, one for each beginning of a character that does not
// go on, as Unicode recommends (3.9, "U+FFFD Substitution of Maximal Subparts").
std::string with_replacements(std::string_view text);

}  // namespace starling
