#pragma once
// Authenticated encryption of messages in one direction of one connection, and the key exchange
// that gives it its key: AES-256-GCM from OpenSSL, X25519 and BLAKE2b from libsodium
// (docs/decisions/020-bulk-frames-are-sealed.md says why not one of them for both).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/base/bytes.h"

struct evp_cipher_ctx_st;

namespace starling {

using AeadKey = std::array<std::uint8_t, 32>;
using AeadTag = std::array<std::uint8_t, 16>;

// The n-th message has n as its nonce. So a message that was changed, repeated, left out or put at
// another place does not hold, provided that a key serves one direction of one connection alone.
// Threads: one at a time.
class Aead {
 public:
  enum class Way : std::uint8_t { kSeal, kOpen };
  Aead(const AeadKey& key, Way way);
  Aead(Aead&&) noexcept = default;
  Aead& operator=(Aead&&) noexcept = default;

  // A message is begin(), then cover() or crypt() any number of times, then its tag.
  void begin();
  // Bytes that the tag covers and any reader can see. Before the first crypt() of a message.
  void cover(ByteView bytes);
  // Encrypts or decrypts `in` into `out`, which may be `in`. What was decrypted may be used only
  // after tag_holds().
  void crypt(ByteView in, std::uint8_t* out);
  AeadTag tag();                       // kSeal
  bool tag_holds(const AeadTag& tag);  // kOpen; in constant time

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  Way way_;
  std::uint64_t messages_ = 0;
};

// KeyExchange is a side of a Diffie-Hellman exchange on Curve25519 (RFC 7748). It wipes its secret.
class KeyExchange {
 public:
  using Public = std::array<std::uint8_t, 32>;
  using Shared = std::array<std::uint8_t, 32>;
  KeyExchange();
  KeyExchange(const KeyExchange&) = default;
  KeyExchange& operator=(const KeyExchange&) = default;
  ~KeyExchange();
  const Public& public_half() const { return public_; }
  // nullopt: what the other side sent is no point that an honest one sends.
  std::optional<Shared> with(const Public& other) const;

 private:
  std::array<std::uint8_t, 32> secret_{};
  Public public_{};
};

}  // namespace starling
