#include "core/base/xml.h"

namespace starling {

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (byte < 0x20)
      out += ' ';
    else
      out += byte > 0x7e ? '?' : c;
  }
  return out;
}

}  // namespace starling
