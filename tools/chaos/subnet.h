#pragma once
// A Subnet is an IPv4 network, drawn for a run among those that this machine does not use. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace starling::chaos {

struct Subnet {
  std::uint32_t base = 0;  // as a number; bits below the prefix are 0
  unsigned prefix = 32;    // 0 to 32
  bool operator==(const Subnet&) const = default;
};

// Reads "10.1.2.0/24" or "10.1.2.3" (one address). None: it is neither.
std::optional<Subnet> parse_subnet(const std::string& text);
bool overlap(const Subnet& a, const Subnet& b);
std::string address_text(std::uint32_t address);  // "10.1.2.3"

// Returns a private network (RFC 1918) with 254 addresses: of 10.0.0.0/8 mostly, every
// eighth time of 172.16.0.0/12 or 192.168.0.0/16, as a site may use the whole of one.
Subnet subnet_of(std::uint64_t number);

// Returns the networks that this machine uses: addresses from `ip -j -4
// addr show`, routes but the default one from `ip -j -4 route show table
// all`; without those of the interface `but`. Other text counts as nothing.
std::vector<Subnet> subnets_in_use(const std::string& addresses, const std::string& routes,
                                   const std::string& but);

}  // namespace starling::chaos
