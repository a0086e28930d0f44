#include "tools/chaos/interfaces.h"

#include <doctest/doctest.h>

namespace starling::chaos {

TEST_CASE("packets of an interface are those of its line") {
  const std::string table =
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs "
      "drop\n"
      "    lo:       0       1    0    0    0     0          0         0        0       2    0    "
      "0\n"
      "    w1:     182       3    0    0    0     0          0         0      158       4    0    "
      "0\n"
      "   w10:12345678      30    5    6    7     8          9        10      158      40    0    "
      "0\n";
  CHECK(packets_of(table, "w1") == Packets{3, 4});
  CHECK(packets_of(table, "w10") == Packets{30, 40});
  CHECK_FALSE(packets_of(table, "w"));
  CHECK_FALSE(packets_of(table, ""));
  CHECK_FALSE(packets_of("  w1: 182 3 0\n", "w1"));  // cut
  CHECK_FALSE(packets_of("", "w1"));
}

TEST_CASE("delayed packets are those of netem alone") {
  CHECK(delayed_packets(R"([{"kind":"netem","handle":"8001:","root":true,"refcnt":9,
      "options":{"limit":100000,"delay":{"delay":0.005,"jitter":0,"correlation":0},"ecn":false},
      "bytes":4200,"packets":42,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}])") ==
        42);
  CHECK(delayed_packets(R"([{"kind":"noqueue","root":true,"bytes":7,"packets":7}])") == 0);
  for (const char* bad : {"", "[]", "{}", "[3]", R"([{"kind":7}])", R"([{"kind":"netem"}])"}) {
    CAPTURE(bad);
    CHECK(delayed_packets(bad) == 0);
  }
}

}  // namespace starling::chaos
