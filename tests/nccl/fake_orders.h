#pragma once
// What the stand-in for NCCL does wrong, and when. See fake_nccl.cpp for the language.

#include <cstdint>
#include <string>

namespace starling::collectives::fake {

struct Order {
  bool given = false;
  std::uint32_t ms = 0;  // of those that take a time
  explicit operator bool() const { return given; }
};

// Whether this is what an order with that name waits for: the n-th time that it is asked about
// `name` for that rank. Threads: any.
Order order(const char* name, int rank);
// Replaces all orders. A text that is none ends the process.
void set_orders(const std::string& text);

// One line, and the end of the process with kMisusedStatus: what NCCL itself answers with a crash.
[[noreturn]] void misused(const std::string& why);
inline constexpr int kMisusedStatus = 70;

}  // namespace starling::collectives::fake
