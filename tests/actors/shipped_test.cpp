#include <doctest/doctest.h>

#include <type_traits>

#include "actors/sabotage.h"
#include "elastic/planted.h"
#include "elastic/protocol/bugs.h"

namespace starling::actors {

// Goal: what is shipped cannot be broken on purpose, and the compiler knows it. Method: this
// program is built with the shipped headers; each of these is a constant of theirs.
TEST_CASE("shipped: no rule has a switch and no promise a saboteur") {
  static_assert(!elastic::kBreakable);
  static_assert(std::is_empty_v<elastic::Planted>);
  static_assert(!elastic::Bugs{}.r9_keep_sending);
  static_assert(!sabotage::accepts_strangers());
  static_assert(!sabotage::ignores_fence("worker-0"));
  static_assert(!sabotage::keeps_stale_parameters(0, "worker-0"));
  static_assert(!sabotage::accepts_any_total("worker-0"));
}

}  // namespace starling::actors
