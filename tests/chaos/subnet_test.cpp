#include "tools/chaos/subnet.h"

#include <doctest/doctest.h>

#include <set>

namespace starling::chaos {
namespace {

Subnet net(const char* text) {
  const auto subnet = parse_subnet(text);
  REQUIRE_MESSAGE(subnet.has_value(), text);
  return *subnet;
}

// As `ip -j -4 addr show` and `ip -j -4 route show table all` (iproute2 6.1) write it.
constexpr const char* kAddresses = R"([
  {"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"],"mtu":65536,
   "addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host","label":"lo"}]},
  {},
  {"ifindex":5,"ifname":"eth0","flags":["UP"],
   "addr_info":[{"family":"inet","local":"192.0.2.2","prefixlen":24,"broadcast":"192.0.2.255"},
                {"family":"inet6","local":"fd00::2","prefixlen":64}]},
  {"ifindex":9,"ifname":"starling0000001","link_netnsid":0,
   "addr_info":[{"family":"inet","local":"10.7.8.1","prefixlen":24}]}])";
constexpr const char* kRoutes = R"([
  {"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},
  {"dst":"172.16.0.0/12","gateway":"192.0.2.9","dev":"eth0","flags":[]},
  {"type":"unreachable","dst":"10.99.0.0/16","metric":1,"flags":[]},
  {"type":"local","dst":"10.7.8.1","dev":"starling0000001","table":"local","flags":[]}])";

bool in_use(const char* text, const std::string& but) {
  for (const Subnet& used : subnets_in_use(kAddresses, kRoutes, but))
    if (overlap(used, net(text))) return true;
  return false;
}

}  // namespace

TEST_CASE("a subnet is an address and a prefix, and nothing else") {
  CHECK(net("10.1.2.0/24") == Subnet{0x0a010200, 24});
  CHECK(net("10.1.2.3/24") == Subnet{0x0a010200, 24});
  CHECK(net("10.1.2.3") == Subnet{0x0a010203, 32});
  CHECK(net("0.0.0.0/0") == Subnet{0, 0});
  for (const char* bad : {"", "default", "10.1.2", "10.1.2.300", "10.1.2.0/33", "10.1.2.0/",
                          "10.1.2.0/-1", "10.1.2.0/024", "fd00::/8"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_subnet(bad));
  }
  CHECK(address_text(0x0a0102ff) == "10.1.2.255");
}

TEST_CASE("two subnets overlap if one has an address of the other") {
  CHECK(overlap(net("10.1.2.0/24"), net("10.1.2.7")));
  CHECK(overlap(net("10.1.2.0/24"), net("10.0.0.0/8")));
  CHECK(overlap(net("0.0.0.0/0"), net("10.1.2.0/24")));
  CHECK_FALSE(overlap(net("10.1.2.0/24"), net("10.1.3.0/24")));
  CHECK_FALSE(overlap(net("10.1.2.0/24"), net("192.168.0.0/16")));
}

TEST_CASE("what is drawn is private, has 254 addresses, and is of each private range at times") {
  std::set<std::uint32_t> bases;
  std::size_t of_range[3] = {};
  const Subnet ranges[] = {net("10.0.0.0/8"), net("172.16.0.0/12"), net("192.168.0.0/16")};
  for (std::uint64_t i = 0; i < 4096; ++i) {
    const Subnet drawn = subnet_of(i * 0x9e3779b97f4a7c15);
    CHECK(drawn.prefix == 24);
    CHECK((drawn.base & 0xff) == 0);
    std::size_t inside = 0;
    for (std::size_t r = 0; r < 3; ++r)
      if (overlap(drawn, ranges[r])) ++of_range[r], ++inside;
    CHECK(inside == 1);
    bases.insert(drawn.base);
  }
  for (const std::size_t count : of_range) CHECK(count > 0);
  CHECK(bases.size() > 3000);  // hardly ever the same for two runs
}

TEST_CASE("addresses and routes of this machine are in use, the default route is not") {
  CHECK(in_use("127.0.0.0/24", ""));
  CHECK(in_use("192.0.2.0/24", ""));
  CHECK(in_use("172.20.1.0/24", ""));
  CHECK(in_use("10.99.3.0/24", ""));
  CHECK_FALSE(in_use("10.98.3.0/24", ""));
  CHECK_FALSE(in_use("192.168.3.0/24", ""));
}

TEST_CASE("one's own interface is not somebody else's") {
  CHECK(in_use("10.7.8.0/24", ""));
  CHECK(in_use("10.7.8.0/24", "starling0000002"));
  CHECK_FALSE(in_use("10.7.8.0/24", "starling0000001"));
}

TEST_CASE("what is no list of addresses or routes has none") {
  for (const char* bad :
       {"", "Object unknown", "{}", "[1,null]", R"([{"addr_info":7}])",
        R"([{"addr_info":[{"family":"inet","local":7,"prefixlen":"x"}]}])", R"([{"dst":3}])"}) {
    CAPTURE(bad);
    CHECK(subnets_in_use(bad, bad, "").empty());
  }
}

}  // namespace starling::chaos
