#include "core/text/composed.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace starling {
namespace {

// All characters below U+0300 are composed, and stay so beside one another; its first byte is 0xcc.
bool is_composed(std::string_view utf8) {
  return std::ranges::none_of(utf8, [](char c) { return static_cast<unsigned char>(c) >= 0xcc; });
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
    utf8proc_uint8_t* made = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(line.data()),
                     static_cast<utf8proc_ssize_t>(line.size()), &made,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(made, &std::free);
    if (size < 0)
      return Error(Code::kInternal, std::string("cannot compose a text: ") + utf8proc_errmsg(size));
    storage.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(size));
  }
  return std::string_view(storage);
}

}  // namespace starling
