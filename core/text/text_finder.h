#pragma once
// Finds any of some texts in another one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace starling {

// Threads: immutable.
class TextFinder {
 public:
  // `texts` are not empty.
  explicit TextFinder(std::vector<std::string> texts);

  struct Found {
    std::size_t begin;  // in the text that is searched
    std::size_t which;  // of `texts`
  };
  // The first of them that begins at `from` or later; of those that begin there the longest.
  std::optional<Found> next(std::string_view text, std::size_t from) const;
  const std::string& text(std::size_t which) const { return texts_[which]; }
  bool empty() const { return texts_.empty(); }

 private:
  std::vector<std::string> texts_;
  std::array<std::vector<std::size_t>, 256> by_first_byte_;  // the longer ones first
};

}  // namespace starling
