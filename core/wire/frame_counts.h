#pragma once
// FrameCounts counts the bytes of frames by their kind.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/wire/frame.h"

namespace starling {

// kAlive is not counted: it says nothing, and is not always sent.
inline constexpr std::size_t kFrameKinds = std::size_t(FrameKind::kAlive);  // and 0, which is none

// Threads: any.
struct FrameCounts {
  using Bytes = std::array<std::atomic<std::uint64_t>, kFrameKinds>;
  Bytes sent{}, received{};  // headers included

  static std::uint64_t in_all(const Bytes& bytes) {
    std::uint64_t all = 0;
    for (const auto& of_kind : bytes) all += of_kind.load(std::memory_order_relaxed);
    return all;
  }
  static void add(Bytes& bytes, FrameKind kind, std::uint64_t count) {
    const auto at = static_cast<std::size_t>(kind);
    if (at < kFrameKinds) bytes[at].fetch_add(count, std::memory_order_relaxed);
  }
};

}  // namespace starling
