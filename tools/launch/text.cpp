#include "tools/launch/text.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::tools {
namespace {

constexpr std::size_t kNameMax = 63;
constexpr std::string_view kPlain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

bool only(std::string_view text, std::string_view further) {
  return std::ranges::all_of(text, [&](char c) {
    return kPlain.find(c) != std::string_view::npos || further.find(c) != std::string_view::npos;
  });
}

// The text, as an error line can show it.
std::string shown(const std::string& text) {
  std::string line = text;
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return line;
}

}  // namespace

std::string fill(std::string_view text, const Fields& fields) {
  std::string filled;
  for (;;) {
    const std::size_t begin = text.find("{{");
    filled += text.substr(0, begin);
    if (begin == std::string_view::npos) return filled;
    const std::size_t end = text.find("}}", begin);
    STARLING_CHECK(end != std::string_view::npos);
    const std::string_view name = text.substr(begin + 2, end - begin - 2);
    const auto field = std::ranges::find(fields, name, &Fields::value_type::first);
    STARLING_CHECK_MSG(field != fields.end(), "field " << name);
    filled += field->second;
    text.remove_prefix(end + 2);
  }
}

std::string code_block(const std::vector<std::string>& lines) {
  std::string block;
  for (const std::string& line : lines) block += (block.empty() ? "    " : "\n    ") + line;
  return block;
}

Result<> check_line(const std::string& what, const std::string& text) {
  if (shown(text) == text) return ok();
  return Error(Code::kBadInput,
               what + " has a control character, expected one line, is " + shown(text));
}

Result<> check_name(const std::string& what, const std::string& text, std::string_view further) {
  if (!text.empty() && text.size() <= kNameMax && only(text, further) && text.front() != '-')
    return ok();
  std::string expected = "letters, digits";
  for (const char c : further) expected += std::string(", ") + c;
  return Error(Code::kBadInput, what + " must be 1 to " + std::to_string(kNameMax) +
                                    " characters, " + expected + ", is \"" + shown(text) + "\"");
}

std::string systemd_word(const std::string& text) {
  if (!text.empty() && only(text, "_-./:,@+=")) return text;
  std::string word = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') word += '\\';
    if (c == '%' || c == '$') word += c;  // twice: no specifier and no variable
    word += c;
  }
  return word + "\"";
}

std::string yaml_word(const std::string& text) {
  std::string word = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') word += '\\';
    word += c;
  }
  return word + "\"";
}

std::string shell_word(const std::string& text) {
  if (!text.empty() && only(text, "_-./:,@%+=")) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace starling::tools
