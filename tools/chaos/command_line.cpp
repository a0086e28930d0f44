#include "tools/chaos/command_line.h"

#include <algorithm>
#include <cctype>

namespace starling::chaos {
namespace {

bool plain(unsigned char c) {
  return std::isalnum(c) || std::string_view("@%_+=:,./-").find(char(c)) != std::string_view::npos;
}

}  // namespace

CommandLine& CommandLine::add(const std::vector<std::string_view>& words) {
  for (const std::string_view word : words) {
    if (!text_.empty()) text_ += ' ';
    if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) {
      text_ += word;
      continue;
    }
    text_ += '\'';
    for (const char c : word) text_ += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text_ += '\'';
  }
  return *this;
}

}  // namespace starling::chaos
