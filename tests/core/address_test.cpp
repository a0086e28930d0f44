#include "core/base/address.h"

#include <doctest/doctest.h>

namespace starling {
namespace {

TEST_CASE("an address is host and port; IPv6 is in brackets") {
  struct Case {
    const char* text;
    Address expected;
  };
  const Case cases[] = {
      {"10.0.0.1:7000", {"10.0.0.1", 7000}},
      {"tcp://10.0.0.1:0", {"10.0.0.1", 0}},
      {"localhost:65535", {"localhost", 65535}},
      {"node-1.cluster_a.local:1", {"node-1.cluster_a.local", 1}},
      {"[::1]:7001", {"::1", 7001}},
      {"tcp://[fe80::1%eth0]:7", {"fe80::1%eth0", 7}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const auto address = parse_address(c.text);
    REQUIRE_MESSAGE(address, address.error().text());
    CHECK(address.value() == c.expected);
    CHECK(parse_address(to_string(c.expected)).value() == c.expected);
  }
}

TEST_CASE("what is no address is refused by what is wrong with it") {
  for (const char* text : {"", "foo", ":7000", "host:", "host:99999", "host:1x", "host:-1", "a b:1",
                           "http://10.0.0.1:7000", "tcp://http://x:1", "::1:7001", "[::1]", "[]:1",
                           "host/path:1", "tcp://", "a,b:1"}) {
    CAPTURE(text);
    const auto address = parse_address(text);
    REQUIRE(!address);
    CHECK(address.error().code() == Code::kBadInput);
    CHECK(address.error().text().find(text) != std::string::npos);
  }
  CHECK(parse_address("::1:7001").error().text().find("[::1]:7000") != std::string::npos);
}

TEST_CASE("several addresses are separated by commas") {
  const auto two = parse_addresses("tcp://10.0.0.1:7,[::1]:8");
  REQUIRE(two);
  CHECK(two.value() == std::vector<Address>{{"10.0.0.1", 7}, {"::1", 8}});
  CHECK(!parse_addresses(""));
  CHECK(!parse_addresses("a:1,"));
  CHECK(means_everywhere("0.0.0.0"));
  CHECK(means_everywhere("::"));
  CHECK(!means_everywhere("::1"));
}

}  // namespace
}  // namespace starling
