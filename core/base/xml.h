#pragma once
// Text inside XML, SVG and HTML.

#include <string>

namespace starling {

// Escapes text: markup and quotes become entities, control characters spaces, and '?' stands for
// all that is not ASCII, as a text from outside need not be UTF-8.
std::string xml_text(const std::string& text);

}  // namespace starling
