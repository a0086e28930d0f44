#pragma once
// Text inside XML, SVG and HTML.

#include <string>

namespace starling {

// With markup and quotes as entities, control characters as spaces, and '?' for whatever is not
// ASCII: what comes from outside need not be UTF-8.
std::string xml_text(const std::string& text);

}  // namespace starling
