#pragma once
// Whether a text has a part.

#include <string>

namespace starling {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace starling
