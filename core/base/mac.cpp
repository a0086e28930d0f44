#include "core/base/mac.h"

#include <sodium.h>

#include "core/base/check.h"

namespace starling {

namespace {
// Any number of threads may ask; the library makes sure that it is set up once.
void set_up() {
  STARLING_CHECK(sodium_init() >= 0);
}
}  // namespace

Mac mac(const EpochKey& key, ByteView message) {
  set_up();
  Mac out{};
  STARLING_CHECK(crypto_generichash(out.data(), out.size(), message.data(), message.size(),
                                    key.data(), key.size()) == 0);
  return out;
}

bool equal(const Mac& a, const Mac& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void random_bytes(std::span<std::uint8_t> out) {
  set_up();
  randombytes_buf(out.data(), out.size());
}

Nonce fresh_nonce() {
  std::uint64_t number = 0;
  randombytes_buf(&number, sizeof number);
  return Nonce(number | 1);
}

}  // namespace starling
