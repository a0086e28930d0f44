#include "core/text/text_finder.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace starling {

TextFinder::TextFinder(std::vector<std::string> texts) : texts_(std::move(texts)) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    STARLING_CHECK(!texts_[i].empty());
    by_first_byte_[static_cast<unsigned char>(texts_[i][0])].push_back(i);
  }
  for (auto& same : by_first_byte_)
    std::ranges::stable_sort(
        same, [&](std::size_t a, std::size_t b) { return texts_[a].size() > texts_[b].size(); });
}

std::optional<TextFinder::Found> TextFinder::next(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at)
    for (const std::size_t which : by_first_byte_[static_cast<unsigned char>(text[at])])
      if (text.substr(at).starts_with(texts_[which])) return Found{at, which};
  return std::nullopt;
}

}  // namespace starling
