#include "core/base/address.h"

#include <algorithm>
#include <cctype>

namespace starling {
namespace {

constexpr std::size_t kHostMax = 255;

bool fits(const std::string& host, bool brackets) {
  const auto fine = [&](unsigned char c) {
    return brackets ? std::isxdigit(c) || c == ':' || c == '.' || c == '%' || std::isalnum(c)
                    : std::isalnum(c) || c == '.' || c == '-' || c == '_';
  };
  return !host.empty() && host.size() <= kHostMax && std::all_of(host.begin(), host.end(), fine);
}

}  // namespace

std::string to_string(const Address& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  const std::string host = brackets ? "[" + address.host + "]" : address.host;
  return host + ":" + std::to_string(address.port);
}

Result<Address> parse_address(const std::string& text) {
  const auto bad = [&](const char* why) {
    return Error(Code::kBadInput, std::string(why) + ", is \"" + text.substr(0, 300) + "\"");
  };
  std::string rest = text;
  if (rest.rfind(kTcpScheme, 0) == 0) rest.erase(0, std::string(kTcpScheme).size());
  if (rest.find("://") != std::string::npos)
    return bad("an address must be host:port, or tcp:// and that");
  const auto colon = rest.rfind(':');
  if (colon == std::string::npos) return bad("an address must be host:port");
  const std::string digits = rest.substr(colon + 1);
  const bool number = !digits.empty() && digits.size() <= 5 &&
                      digits.find_first_not_of("0123456789") == std::string::npos &&
                      std::stoul(digits) <= 65535;
  if (!number) return bad("an address must be host:port with a port up to 65535");
  std::string host = rest.substr(0, colon);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  if (!brackets && host.find(':') != std::string::npos)
    return bad("an IPv6 address must be in brackets, as [::1]:7000");
  if (!fits(host, brackets)) return bad("an address must be host:port");
  return Address{std::move(host), static_cast<std::uint16_t>(std::stoul(digits))};
}

Result<std::vector<Address>> parse_addresses(const std::string& text) {
  std::vector<Address> found;
  for (std::size_t at = 0; at <= text.size();) {
    const auto comma = std::min(text.find(',', at), text.size());
    STARLING_TRY(address, parse_address(text.substr(at, comma - at)));
    found.push_back(std::move(address));
    at = comma + 1;
  }
  return found;
}

bool means_everywhere(const std::string& host) {
  return host == "0.0.0.0" || host == "::" || host == "*" || host == "0";
}

}  // namespace starling
