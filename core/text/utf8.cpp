#include "core/text/utf8.h"

namespace starling {
namespace {

struct Character {
  std::size_t bytes;  // of it, or of what could have become one
  bool whole;
};

// What stands at the beginning of a text that is not empty.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  for (std::size_t i = 1; i < length; ++i) {
    // The second byte keeps out longer forms than needed, surrogates and what is above U+10FFFF.
    const bool second = i == 1;
    const unsigned char low = second && lead == 0xe0 ? 0xa0 : second && lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = second && lead == 0xed ? 0x9f : second && lead == 0xf4 ? 0x8f : 0xbf;
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
  }
  return {length, true};
}

}  // namespace

std::optional<std::size_t> not_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Character character = first_of(text.substr(at));
    if (!character.whole) return at;
    at += character.bytes;
  }
  return std::nullopt;
}

std::string with_replacements(std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const Character character = first_of(text);
    made += character.whole ? text.substr(0, character.bytes) : "\xef\xbf\xbd";
    text.remove_prefix(character.bytes);
  }
  return made;
}

}  // namespace starling
