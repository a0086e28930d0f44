#include "core/base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace starling {
namespace {

constexpr std::size_t kWordMax = 64;

// Edits (insert, delete, replace) that turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  for (const auto& k : known)
    if (word.size() >= 3 && k.starts_with(word)) return k;
  std::string found;
  std::size_t best = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const auto& k : known)
    if (const auto d = edit_distance(word.substr(0, kWordMax), k); d < best) best = d, found = k;
  return found;
}

}  // namespace starling
