#include "core/base/aead.h"

#include <openssl/evp.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/mac.h"

namespace starling {

namespace {
constexpr std::size_t kBytesAtOnce = std::size_t{1} << 30;  // the library counts in int
}

void Aead::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

Aead::Aead(const AeadKey& key, Way way) : context_(EVP_CIPHER_CTX_new()), way_(way) {
  STARLING_CHECK(context_ != nullptr);
  STARLING_CHECK(EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, key.data(), nullptr,
                                   way == Way::kSeal ? 1 : 0) == 1);
}

void Aead::begin() {
  std::array<std::uint8_t, 12> nonce{};
  std::memcpy(nonce.data(), &messages_, sizeof messages_);
  ++messages_;
  STARLING_CHECK(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) ==
                 1);
}

void Aead::cover(ByteView bytes) {
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kBytesAtOnce);
    int done = 0;
    STARLING_CHECK(
        EVP_CipherUpdate(context_.get(), nullptr, &done, bytes.data(), static_cast<int>(n)) == 1);
    bytes = bytes.subspan(n);
  }
}

void Aead::crypt(ByteView in, std::uint8_t* out) {
  while (!in.empty()) {
    const std::size_t n = std::min(in.size(), kBytesAtOnce);
    int done = 0;
    STARLING_CHECK(EVP_CipherUpdate(context_.get(), out, &done, in.data(), static_cast<int>(n)) ==
                   1);
    STARLING_CHECK(done == static_cast<int>(n));
    in = in.subspan(n);
    out += n;
  }
}

AeadTag Aead::tag() {
  STARLING_CHECK(way_ == Way::kSeal);
  AeadTag tag{};
  int done = 0;
  STARLING_CHECK(EVP_CipherFinal_ex(context_.get(), tag.data(), &done) == 1 && done == 0);
  STARLING_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG,
                                     static_cast<int>(tag.size()), tag.data()) == 1);
  return tag;
}

bool Aead::tag_holds(const AeadTag& tag) {
  STARLING_CHECK(way_ == Way::kOpen);
  AeadTag expected = tag;  // the library takes what it will not change as if it might
  STARLING_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG,
                                     static_cast<int>(expected.size()), expected.data()) == 1);
  std::array<std::uint8_t, 16> rest;
  int done = 0;
  return EVP_CipherFinal_ex(context_.get(), rest.data(), &done) == 1;
}

KeyExchange::KeyExchange() {
  random_bytes(secret_);
  STARLING_CHECK(crypto_scalarmult_base(public_.data(), secret_.data()) == 0);
}

KeyExchange::~KeyExchange() {
  sodium_memzero(secret_.data(), secret_.size());
}

std::optional<KeyExchange::Shared> KeyExchange::with(const Public& other) const {
  Shared shared{};
  if (crypto_scalarmult(shared.data(), secret_.data(), other.data()) != 0) return std::nullopt;
  return shared;
}

}  // namespace starling
