#include "collectives/nccl/transport.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/nccl/world.h"

namespace starling::collectives {
namespace {

// Goal: every byte arrives where it belongs. Method: tables with every kind of hole, sizes around
// what a socket takes, several transfers of a pair; the bytes are a function of place and round.
TEST_CASE("a round carries what each asked for, whatever the table") {
  for (const Place place : {Place::kDevice, Place::kHost}) {
    for (const std::uint32_t size : {2u, 3u, 4u}) {
      CAPTURE(size);
      World world(size, {.place = place});
      world.make(8u << 20);
      std::uint64_t seed = 0;
      for (const std::size_t bytes : {1u, 255u, 256u, 4097u, 1u << 20}) {
        CAPTURE(bytes);
        world.round_is_right(everybody_to_everybody(size, bytes), ++seed);
      }
      Table uneven = everybody_to_everybody(size, 0);
      uneven[0][1] = {300'000, 1, 0, 17};
      uneven[1][0] = {};
      uneven[size - 1][0] = {5};
      world.round_is_right(uneven, ++seed);
      // Nobody asks for anything.
      world.round_is_right(everybody_to_everybody(size, 0), ++seed);
      world.round_is_right(everybody_to_everybody(size, 77), ++seed);
    }
  }
}

TEST_CASE("staging memory is zeros when a transport is ready, whatever the warm-up sent") {
  World world(3);
  world.make(1000);
  for (const auto& member : world.members()) CHECK(member->staging_is_zero());
}

TEST_CASE("a transport of nothing but its warm-up needs no staging memory") {
  World world(2);
  world.make(0);
  world.round_is_right(everybody_to_everybody(2, 0), 1);
}

}  // namespace
}  // namespace starling::collectives
