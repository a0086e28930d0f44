#pragma once
// A CommandLine is a command as a person types it, for reports that say how to repeat a run.

#include <string>
#include <string_view>
#include <vector>

namespace starling::chaos {

// A POSIX shell reads these words again: a word that it would split or change is in quotes.
class CommandLine {
 public:
  explicit CommandLine(const std::vector<std::string_view>& words) { add(words); }
  CommandLine& add(const std::vector<std::string_view>& words);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace starling::chaos
