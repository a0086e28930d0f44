#pragma once
// An Address is where a process listens or is reached, as people write it: host:port, where the
// host is a name, an IPv4 address, or an IPv6 address in brackets; tcp:// may stand before it.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling {

inline constexpr const char* kTcpScheme = "tcp://";

struct Address {
  std::string host;  // without brackets
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// Gives "host:port", with brackets where the host has colons.
std::string to_string(const Address& address);
// Errors: kBadInput  it is something else, as http://host:port or a port above 65535.
Result<Address> parse_address(const std::string& text);
// Parses addresses separated by commas; tcp:// may stand before the first.
Result<std::vector<Address>> parse_addresses(const std::string& text);
// Whether the host means "all addresses of this machine": a process can listen there, not dial it.
bool means_everywhere(const std::string& host);

}  // namespace starling
