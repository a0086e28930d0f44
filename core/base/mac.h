#pragma once
// Message authentication and random bytes, from libsodium.

#include <array>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "core/base/ids.h"

namespace starling {

using Mac = std::array<std::uint8_t, 32>;

// BLAKE2b with a key, 256 bits.
Mac mac(const EpochKey& key, ByteView message);
// Compares in constant time.
bool equal(const Mac& a, const Mac& b);

// Random bytes of the system's generator: for keys, nonces and ids, never for training's input.
void random_bytes(std::span<std::uint8_t> out);
Nonce fresh_nonce();  // never 0

}  // namespace starling
