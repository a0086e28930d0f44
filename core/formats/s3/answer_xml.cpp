#include "core/formats/s3/answer_xml.h"

#include <charconv>
#include <utility>

namespace starling::s3 {
namespace {

Error no_answer(const std::string& what) {
  return Error(Code::kCorrupt, "the store's answer is not XML as S3 has it: " + what);
}

// Appends a code point as UTF-8. False: there is none.
bool add_code_point(std::string& out, std::uint32_t code) {
  const auto byte = [&](std::uint32_t value) { out += static_cast<char>(value); };
  if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6), byte(0x80 | (code & 63));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63));
  } else {
    byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 63));
    byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63));
  }
  return true;
}

// `entity`: between '&' and ';'. False: there is none such.
bool add_entity(std::string& out, std::string_view entity) {
  constexpr std::pair<std::string_view, char> kNamed[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& [name, c] : kNamed)
    if (entity == name) {
      out += c;
      return true;
    }
  if (!entity.starts_with('#')) return false;
  entity.remove_prefix(1);
  const bool hex = entity.starts_with('x');
  if (hex) entity.remove_prefix(1);
  std::uint32_t code = 0;
  const auto read =
      std::from_chars(entity.data(), entity.data() + entity.size(), code, hex ? 16 : 10);
  return read.ec == std::errc() && read.ptr == entity.data() + entity.size() &&
         add_code_point(out, code);
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto at = std::min(text.find('&'), text.size());
    out += text.substr(0, at);
    text.remove_prefix(at);
    if (text.empty()) break;
    const auto end = text.find(';');
    if (end == text.npos || !add_entity(out, text.substr(1, end - 1))) return std::nullopt;
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace

Result<std::vector<std::string>> texts_of(std::string_view xml, const std::string& name) {
  if (xml.find("<!") != xml.npos) return no_answer("it declares types, or has a comment");
  const std::string begin = "<" + name + ">", end = "</" + name + ">";
  std::vector<std::string> found;
  for (auto at = xml.find(begin); at != xml.npos; at = xml.find(begin, at)) {
    at += begin.size();
    const auto close = xml.find('<', at);
    if (close == xml.npos) return no_answer("it ends inside " + begin);
    if (xml.compare(close, end.size(), end) != 0) continue;  // it holds elements
    auto text = unescaped(xml.substr(at, close - at));
    if (!text) return no_answer("an entity that does not exist, in " + begin);
    found.push_back(std::move(*text));
    at = close;
  }
  return found;
}

std::optional<std::string> text_of(std::string_view xml, const std::string& name) {
  auto found = texts_of(xml, name);
  if (!found || found.value().empty()) return std::nullopt;
  return std::move(found.value().front());
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      std::uint8_t byte = 0;
      if (text.size() - i < 3) return std::nullopt;
      const char* const digits = text.data() + i + 1;
      const auto read = std::from_chars(digits, digits + 2, byte, 16);
      if (read.ec != std::errc() || read.ptr != digits + 2) return std::nullopt;
      out += static_cast<char>(byte);
      i += 2;
    }
  }
  return out;
}

}  // namespace starling::s3
