// Uses the installed package the way another project would: a header of the lowest room, and the actor
// library that the highest room brings along.
#include <caf/all.hpp>
#include <cstdio>

#include "core/job/layout.h"

int main() {
  caf::actor_system_config config;
  caf::actor_system system{config};
  const starling::Layout layout({{"weight", {128, 64}}, {"bias", {64}}});
  std::printf("segments: %u\n", layout.segments());
}
