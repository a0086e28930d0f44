#include "core/text/composed.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace starling {
namespace {

using Character = utf8proc_int32_t;

// utf8proc takes this one, which is no letter of Hangul's last ones but stands before them, for one of them.
constexpr Character kBeforeHangulLast = 0x11a7;

// All characters below U+0300 are composed, and stay so beside one another; its first byte is 0xcc.
bool is_composed(std::string_view utf8) {
  return std::ranges::none_of(utf8, [](char c) { return static_cast<unsigned char>(c) >= 0xcc; });
}

int class_of(Character c) {
  return utf8proc_get_property(c)->combining_class;
}

// The characters, with marks behind one another in their canonical order: utf8proc sorts them, too, in a time that is
// the square of their number if they are not.
std::vector<Character> in_order(std::string_view utf8) {
  std::vector<Character> all;
  all.reserve(utf8.size());
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(utf8.data());
  for (auto left = static_cast<utf8proc_ssize_t>(utf8.size()); left > 0;) {
    Character c = 0;
    const auto size = std::max<utf8proc_ssize_t>(1, utf8proc_iterate(at, left, &c));
    at += size, left -= size;
    // Those three are never composed, have no class, and are two marks each.
    const Character second = c == 0x0f73 ? 0x0f72 : c == 0x0f75 ? 0x0f74 : c == 0x0f81 ? 0x0f80 : 0;
    all.push_back(second != 0 ? 0x0f71 : c);
    if (second != 0) all.push_back(second);
  }
  for (auto begin = all.begin(); begin != all.end();) {
    begin = std::find_if(begin, all.end(), class_of);
    const auto end = std::find_if_not(begin, all.end(), class_of);
    std::stable_sort(begin, end,
                     [](Character a, Character b) { return class_of(a) < class_of(b); });
    begin = end;
  }
  return all;
}

std::string encoded(std::vector<Character>::const_iterator from,
                    std::vector<Character>::const_iterator to) {
  std::string utf8;
  for (; from != to; ++from) {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(*from, bytes);
    utf8.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  }
  return utf8;
}

// Appends the composition of a piece.
Result<> compose(const std::string& piece, std::string& to) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(piece.data()),
                   static_cast<utf8proc_ssize_t>(piece.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(made, &std::free);
  if (size < 0)
    return Error(Code::kInternal, std::string("cannot compose a text: ") + utf8proc_errmsg(size));
  to.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(size));
  return ok();
}

}  // namespace

Result<std::string_view> composed(std::string_view utf8, std::string& storage) {
  if (is_composed(utf8)) return utf8;
  storage.clear();
  storage.reserve(utf8.size() + utf8.size() / 8);
  // Nothing composes with a line's end, so lines are composed apart, in little memory.
  while (!utf8.empty()) {
    const std::string_view line = utf8.substr(0, std::min(utf8.find('\n'), utf8.size() - 1) + 1);
    utf8.remove_prefix(line.size());
    if (is_composed(line)) {
      storage += line;
      continue;
    }
    const std::vector<Character> all = in_order(line);
    for (auto from = all.begin(); from != all.end();) {
      const auto to = std::find(from, all.end(), kBeforeHangulLast);
      STARLING_TRY(compose(encoded(from, to), storage));
      from = to;
      for (; from != all.end() && *from == kBeforeHangulLast; ++from) storage += "\xe1\x86\xa7";
    }
  }
  return std::string_view(storage);
}

}  // namespace starling
