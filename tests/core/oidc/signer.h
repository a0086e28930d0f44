#pragma once
// Keys of a provider for tests, and tokens that they sign.

#include <doctest/doctest.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <sodium.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace starling::oidc {

inline std::string encoded(const std::string& bytes) {
  std::string text(
      sodium_base64_ENCODED_LEN(bytes.size(), sodium_base64_VARIANT_URLSAFE_NO_PADDING), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                    bytes.size(), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
  text.resize(std::strlen(text.c_str()));
  return text;
}

class Signer {
 public:
  static Signer rsa(const std::string& id, unsigned bits = 2048) {
    return Signer(id, EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", std::size_t{bits}));
  }
  static Signer ec(const std::string& id, const std::string& curve) {
    return Signer(id, EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", curve.c_str()));
  }

  nlohmann::json jwk() const {
    nlohmann::json key;
    if (!id_.empty()) key["kid"] = id_;
    if (EVP_PKEY_get_base_id(key_.get()) == EVP_PKEY_RSA) {
      key["kty"] = "RSA";
      key["n"] = encoded(number(OSSL_PKEY_PARAM_RSA_N, 0));
      key["e"] = encoded(number(OSSL_PKEY_PARAM_RSA_E, 0));
      return key;
    }
    key["kty"] = "EC";
    const int bits = EVP_PKEY_get_bits(key_.get());
    key["crv"] = "P-" + std::to_string(bits);
    key["x"] = encoded(number(OSSL_PKEY_PARAM_EC_PUB_X, (bits + 7) / 8));
    key["y"] = encoded(number(OSSL_PKEY_PARAM_EC_PUB_Y, (bits + 7) / 8));
    return key;
  }

  // Signs parts that are encoded already.
  std::string sign_text(const std::string& algorithm, const std::string& text) const {
    const EVP_MD* const digest = algorithm.ends_with("256")   ? EVP_sha256()
                                 : algorithm.ends_with("384") ? EVP_sha384()
                                                              : EVP_sha512();
    const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                     &EVP_MD_CTX_free);
    EVP_PKEY_CTX* options = nullptr;
    REQUIRE(EVP_DigestSignInit(context.get(), &options, digest, nullptr, key_.get()) == 1);
    if (algorithm.starts_with("PS")) {
      REQUIRE(EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1);
      REQUIRE(EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST) == 1);
    }
    std::size_t size = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    REQUIRE(EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) == 1);
    std::string signature(size, '\0');
    REQUIRE(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                           bytes, text.size()) == 1);
    signature.resize(size);
    return algorithm.starts_with("ES") ? raw(signature) : signature;
  }

  std::string token(const std::string& algorithm, const std::string& payload,
                    nlohmann::json head = {}) const {
    head["alg"] = algorithm;
    if (!head.contains("kid") && !id_.empty()) head["kid"] = id_;
    const std::string text = encoded(head.dump()) + "." + encoded(payload);
    return text + "." + encoded(sign_text(algorithm, text));
  }

 private:
  Signer(std::string id, EVP_PKEY* key) : id_(std::move(id)), key_(key, &EVP_PKEY_free) {
    REQUIRE(key_);
  }

  std::string number(const char* name, int width) const {
    BIGNUM* value = nullptr;
    REQUIRE(EVP_PKEY_get_bn_param(key_.get(), name, &value) == 1);
    const int size = width > 0 ? width : BN_num_bytes(value);
    std::string bytes(static_cast<std::size_t>(size), '\0');
    REQUIRE(BN_bn2binpad(value, reinterpret_cast<unsigned char*>(bytes.data()), size) == size);
    BN_free(value);
    return bytes;
  }

  // Of a signature in DER the two numbers that RFC 7518 wants.
  std::string raw(const std::string& der) const {
    const auto* at = reinterpret_cast<const unsigned char*>(der.data());
    ECDSA_SIG* const pair = d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size()));
    REQUIRE(pair != nullptr);
    const int half = (EVP_PKEY_get_bits(key_.get()) + 7) / 8;
    std::string bytes(static_cast<std::size_t>(2 * half), '\0');
    auto* const out = reinterpret_cast<unsigned char*>(bytes.data());
    REQUIRE(BN_bn2binpad(ECDSA_SIG_get0_r(pair), out, half) == half);
    REQUIRE(BN_bn2binpad(ECDSA_SIG_get0_s(pair), out + half, half) == half);
    ECDSA_SIG_free(pair);
    return bytes;
  }

  std::string id_;
  std::shared_ptr<EVP_PKEY> key_;
};

inline std::string set_of(const std::vector<nlohmann::json>& keys) {
  return nlohmann::json{{"keys", keys}}.dump();
}

}  // namespace starling::oidc
