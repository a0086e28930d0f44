#include "actors/sabotage.h"

#include <doctest/doctest.h>

namespace starling::actors {

TEST_CASE("sabotage: an order has a kind, a step and a worker, or is none") {
  const auto order = parse_sabotage("flip-state@20@worker-1");
  REQUIRE(order);
  CHECK(order->kind == Sabotage::kFlipState);
  CHECK(order->version == 20);
  CHECK(order->worker == "worker-1");
  CHECK(parse_sabotage("leave-process")->worker.empty());
  CHECK(parse_sabotage("double-total@7")->version == 7);
  CHECK(parse_sabotage("corrupt-replica@5")->kind == Sabotage::kCorruptReplica);
  for (const char* bad : {"", "@", "sing", "flip-state@", "flip-state@x", "flip-state@1@",
                          "flip-state@1worker", "flip-state@-1"})
    CHECK_MESSAGE(!parse_sabotage(bad), bad);
}

TEST_CASE("sabotage: nothing is ordered where the environment does not say so") {
  CHECK(!sabotage_ordered(Sabotage::kLeaveProcess));
  CHECK(!sabotage_due(Sabotage::kFlipState, 0, "worker-0"));
}

}  // namespace starling::actors
