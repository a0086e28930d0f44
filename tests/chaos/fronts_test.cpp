#include "tools/chaos/fronts.h"

#include <doctest/doctest.h>

#include <set>

namespace starling::chaos {

TEST_CASE("a worker behind the proxy is told of fronts alone, and listens elsewhere") {
  const auto proxy = Proxy::start().value();
  const std::vector<std::string> coordinators = {"127.0.0.1:7001", "127.0.0.1:7002"};
  auto told = addresses_behind(*proxy, "worker-1", coordinators);
  REQUIRE(told);
  const auto& words = told.value();
  REQUIRE(words.size() == 6);
  CHECK(words[0] == "--join");
  CHECK(words[2] == "--listen");
  CHECK(words[4] == "--advertise");
  const auto comma = words[1].find(',');
  REQUIRE(comma != std::string::npos);
  const std::set<std::string> all = {words[1].substr(0, comma),
                                     words[1].substr(comma + 1),
                                     words[3],
                                     words[5],
                                     coordinators[0],
                                     coordinators[1]};
  CHECK(all.size() == 6);  // each another
}

TEST_CASE("an address without a port is refused") {
  const auto proxy = Proxy::start().value();
  for (const char* bad : {"here", "here:", "here:0", "here:70000"}) {
    CAPTURE(bad);
    CHECK_FALSE(addresses_behind(*proxy, "worker-1", {bad}));
  }
}

}  // namespace starling::chaos
