#include "tests/cuda/imitation/order.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>

namespace starling::imitation {
namespace {

using Chosen = std::pair<Order, std::uint64_t>;

Chosen from_environment() {
  const char* text = std::getenv("STARLING_IMITATION_ORDER");
  if (text == nullptr || std::strcmp(text, "ascending") == 0) return {Order::kAscending, 0};
  if (std::strcmp(text, "descending") == 0) return {Order::kDescending, 0};
  char* end = nullptr;
  constexpr std::size_t kPrefix = 9;
  if (std::strncmp(text, "shuffled:", kPrefix) == 0) {
    const std::uint64_t seed = std::strtoull(text + kPrefix, &end, 10);
    if (end != text + kPrefix && *end == 0) return {Order::kShuffled, seed};
  }
  std::fprintf(stderr,
               "STARLING_IMITATION_ORDER must be ascending, descending or shuffled:SEED, is %s\n",
               text);
  std::abort();
}

struct Setting {
  std::mutex mutex;
  Chosen chosen = from_environment();
};
Setting& setting() {
  static auto* const setting = new Setting;  // launches of static destructors find it too
  return *setting;
}

}  // namespace

bool second_chosen(const char* variable, const char* first, const char* second) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || std::strcmp(text, first) == 0) return false;
  if (std::strcmp(text, second) == 0) return true;
  std::fprintf(stderr, "%s must be %s or %s, is %s\n", variable, first, second, text);
  std::abort();
}

void set_order(Order order, std::uint64_t seed) {
  const std::lock_guard lock(setting().mutex);
  setting().chosen = {order, seed};
}

std::pair<Order, std::uint64_t> current_order() {
  const std::lock_guard lock(setting().mutex);
  return setting().chosen;
}

OrderScope::OrderScope(Order order, std::uint64_t seed)
    : before_(current_order().first), seed_before_(current_order().second) {
  set_order(order, seed);
}

OrderScope::~OrderScope() {
  set_order(before_, seed_before_);
}

GridOrder::GridOrder(Order order, std::uint64_t seed, std::uint64_t blocks)
    : blocks_(blocks), left_(blocks) {
  if (order == Order::kDescending) {
    next_ = blocks - 1;
    stride_ = blocks - 1;  // one back
  } else if (order == Order::kShuffled) {
    Draw draw(seed);
    next_ = draw() % blocks;
    do {
      stride_ = draw() % blocks;
    } while (std::gcd(stride_, blocks) != 1);
  }
}

}  // namespace starling::imitation
