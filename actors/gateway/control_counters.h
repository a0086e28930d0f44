#pragma once
// ControlCounters is what a gateway has kept out, as of the last look at it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "actors/gateway/gateway.h"
#include "core/observe/exposition.h"

namespace starling::actors {

// Threads: any.
struct ControlCounters {
  std::atomic<std::uint64_t> refused_handshakes{0};
  std::array<std::atomic<std::uint64_t>, std::size_t(Drop::kCount)> dropped{};  // by Drop

  void look_at(const Gateway& gateway);
  void write(Exposition& out) const;
};

}  // namespace starling::actors
