#include "core/text/written_text.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/text/utf8.h"

namespace starling {
namespace {

// Bytes at the end of a text that may be the beginning of a character.
std::size_t open_character(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// Bytes at the end of a text with which a stop begins.
std::size_t open_stop(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(stop.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(stop.substr(0, n))) return n;
  return 0;
}

}  // namespace

WrittenText::WrittenText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) STARLING_CHECK(!stop.empty());
}

std::string WrittenText::add(std::string_view piece) {
  if (over_) return {};
  held_ += piece;
  auto first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    over_ = true;
    const std::string shown = held_.substr(0, first);
    held_.clear();
    return with_replacements(shown);
  }
  std::size_t open = open_character(held_);
  for (const std::string& stop : stops_) open = std::max(open, open_stop(held_, stop));
  const std::string shown = held_.substr(0, held_.size() - open);
  held_.erase(0, shown.size());
  return with_replacements(shown);
}

std::string WrittenText::rest() {
  return with_replacements(std::exchange(held_, {}));
}

}  // namespace starling
