#include "tests/breakable/sabotage_order.h"

#include <doctest/doctest.h>

namespace starling::actors::sabotage {

TEST_CASE("sabotage: an order has a kind, a step and a worker, or is none") {
  const auto order = parse_order("flip-state@20@worker-1");
  REQUIRE(order);
  CHECK(order->kind == Kind::kFlipState);
  CHECK(order->version == 20);
  CHECK(order->worker == "worker-1");
  CHECK(parse_order("leave-process")->worker.empty());
  CHECK(parse_order("double-total@7")->version == 7);
  CHECK(parse_order("corrupt-replica@5")->kind == Kind::kCorruptReplica);
  for (const char* bad : {"", "@", "sing", "flip-state@", "flip-state@x", "flip-state@1@",
                          "flip-state@1worker", "flip-state@-1"})
    CHECK_MESSAGE(!parse_order(bad), bad);
}

TEST_CASE("sabotage: nothing is ordered where the environment does not say so") {
  CHECK(!ordered(Kind::kLeaveProcess));
  CHECK(!due(Kind::kFlipState, 0, "worker-0"));
}

}  // namespace starling::actors::sabotage
