#include "core/base/ids.h"

#include <cstdio>

namespace starling {

// Clang 14 without optimization emits the constructor that calls this, though never for a value
// that does not fit.
void id_detail::out_of_range() {}

std::string to_string(const EpochId& id) {
  return std::to_string(id.term) + "." + std::to_string(id.counter);
}

std::string to_string(const Incarnation& who) {
  char text[48];
  std::snprintf(text, sizeof text, "%llu-%08llx", static_cast<unsigned long long>(who.counter),
                static_cast<unsigned long long>(who.nonce >> 32));
  return text;
}

std::string to_string(const Digest& digest) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(digest[1]),
                static_cast<unsigned long long>(digest[0]));
  return text;
}

std::string to_string(const JobId& job) {
  std::string text;
  char hex[3];
  for (auto byte : job) {
    std::snprintf(hex, sizeof hex, "%02x", byte);
    text += hex;
  }
  return text;
}

Digest operator+(const Digest& a, const Digest& b) {
  Digest sum;
  sum[0] = a[0] + b[0];
  sum[1] = a[1] + b[1] + (sum[0] < a[0] ? 1 : 0);
  return sum;
}

}  // namespace starling
