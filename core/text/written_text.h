#pragma once
// Text that grows piece by piece, and when it may be shown.

#include <string>
#include <string_view>
#include <vector>

namespace starling {

// Pieces may end within a character, and a text at which all ends may begin in one piece and end in another:
// what could be either is held back.
class WrittenText {
 public:
  // `stops` are not empty.
  explicit WrittenText(std::vector<std::string> stops = {});

  // Returns what may be shown now: whole characters, U+FFFD for what is none, nothing that could be the beginning
  // of a stop. Nothing once it is over.
  std::string add(std::string_view piece);
  // Whether a stop has come.
  bool over() const { return over_; }
  // What was held back and is no stop.
  std::string rest();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool over_ = false;
};

}  // namespace starling
