#include "tools/chaos/subnet.h"

#include <arpa/inet.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace starling::chaos {
namespace {

using Json = nlohmann::json;

std::uint32_t mask(unsigned prefix) {
  return prefix == 0 ? 0 : ~std::uint32_t{0} << (32 - prefix);
}

// Returns the entries of a list; none of anything else.
std::vector<Json> entries_of(const Json& list) {
  if (!list.is_array()) return {};
  std::vector<Json> found;
  for (const Json& entry : list)
    if (entry.is_object()) found.push_back(entry);
  return found;
}

std::string word(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Json parse(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

std::optional<Subnet> parse_subnet(const std::string& text) {
  const auto slash = text.find('/');
  Subnet subnet;
  if (slash != std::string::npos) {
    const std::string digits = text.substr(slash + 1);
    if (digits.empty() || digits.size() > 2 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      return std::nullopt;
    subnet.prefix = static_cast<unsigned>(std::stoul(digits));
    if (subnet.prefix > 32) return std::nullopt;
  }
  in_addr address{};
  if (::inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1) return std::nullopt;
  subnet.base = ::ntohl(address.s_addr) & mask(subnet.prefix);
  return subnet;
}

bool overlap(const Subnet& a, const Subnet& b) {
  const std::uint32_t common = mask(std::min(a.prefix, b.prefix));
  return (a.base & common) == (b.base & common);
}

std::string address_text(std::uint32_t address) {
  const in_addr network{::htonl(address)};
  char text[INET_ADDRSTRLEN];
  return ::inet_ntop(AF_INET, &network, text, sizeof text);
}

Subnet subnet_of(std::uint64_t number) {
  const auto third = static_cast<std::uint32_t>(number >> 8) & 0xff;
  const auto second = static_cast<std::uint32_t>(number >> 16) & 0xff;
  switch (number % 16) {
    case 0:
      return {0xc0a80000u | third << 8, 24};  // 192.168.x.0
    case 1:
      return {0xac100000u | (second & 0x0f) << 16 | third << 8, 24};  // 172.16-31.x.0
    default:
      return {0x0a000000u | second << 16 | third << 8, 24};  // 10.x.x.0
  }
}

std::vector<Subnet> subnets_in_use(const std::string& addresses, const std::string& routes,
                                   const std::string& but) {
  std::vector<Subnet> used;
  const auto add = [&](const std::string& text, unsigned prefix_max) {
    auto subnet = parse_subnet(text);
    if (subnet && subnet->prefix > 0)
      used.push_back({subnet->base & mask(prefix_max), std::min(subnet->prefix, prefix_max)});
  };
  for (const Json& interface : entries_of(parse(addresses))) {
    if (!but.empty() && word(interface, "ifname") == but) continue;
    for (const Json& address : entries_of(interface.value("addr_info", Json::array()))) {
      const auto prefix = address.find("prefixlen");
      if (word(address, "family") != "inet" || prefix == address.end() ||
          !prefix->is_number_unsigned())
        continue;
      add(word(address, "local"), std::min(prefix->get<unsigned>(), 32u));
    }
  }
  for (const Json& route : entries_of(parse(routes)))
    if (but.empty() || word(route, "dev") != but) add(word(route, "dst"), 32);
  return used;
}

}  // namespace starling::chaos
