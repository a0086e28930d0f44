#include "core/formats/oidc/key_set.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "core/base/json.h"

namespace starling::oidc {
namespace {

constexpr int kRsaBitsMin = 2048, kRsaBitsMax = 8192;
constexpr std::size_t kExponentBytes = 8;  // F4 has three
constexpr std::size_t kIdBytes = 512;
constexpr std::size_t kShownBytes = 200;

struct AlgorithmRow {
  std::string_view name;
  Algorithm algorithm;
  const EVP_MD* (*digest)();
};
constexpr AlgorithmRow kAlgorithms[] = {
    {"RS256", Algorithm::kRs256, EVP_sha256}, {"RS384", Algorithm::kRs384, EVP_sha384},
    {"RS512", Algorithm::kRs512, EVP_sha512}, {"PS256", Algorithm::kPs256, EVP_sha256},
    {"PS384", Algorithm::kPs384, EVP_sha384}, {"PS512", Algorithm::kPs512, EVP_sha512},
    {"ES256", Algorithm::kEs256, EVP_sha256}, {"ES384", Algorithm::kEs384, EVP_sha384},
    {"ES512", Algorithm::kEs512, EVP_sha512}};

const AlgorithmRow& row_of(Algorithm algorithm) {
  return kAlgorithms[static_cast<std::size_t>(algorithm)];
}

bool is_pss(Algorithm algorithm) {
  return algorithm >= Algorithm::kPs256 && algorithm <= Algorithm::kPs512;
}
bool is_ec(Algorithm algorithm) {
  return algorithm >= Algorithm::kEs256;
}

template <auto free>
struct Freed {
  template <class T>
  void operator()(T* of) const {
    free(of);
  }
};
using Number = std::unique_ptr<BIGNUM, Freed<BN_free>>;
using Builder = std::unique_ptr<OSSL_PARAM_BLD, Freed<OSSL_PARAM_BLD_free>>;
using Params = std::unique_ptr<OSSL_PARAM, Freed<OSSL_PARAM_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>>;
using EcSignature = std::unique_ptr<ECDSA_SIG, Freed<ECDSA_SIG_free>>;

// Makes a key of its parameters; null: they are those of no key.
std::shared_ptr<void> key_of(const char* type, OSSL_PARAM_BLD* builder) {
  const Params params(OSSL_PARAM_BLD_to_param(builder));
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* key = nullptr;
  if (!params || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params.get()) != 1)
    return nullptr;
  return {key, [](void* of) { EVP_PKEY_free(static_cast<EVP_PKEY*>(of)); }};
}

// The text at this name; none: there is none, or something else is there.
std::optional<std::string> text_at(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<Bytes> bytes_at(const nlohmann::json& object, const char* name) {
  const auto text = text_at(object, name);
  auto bytes = text ? base64url(*text) : bad_input("none");
  if (!bytes || bytes.value().empty()) return std::nullopt;
  return std::move(bytes).value();
}

Number number_of(ByteView bytes) {
  return Number(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
}

std::shared_ptr<void> rsa_key(const nlohmann::json& object) {
  const auto n = bytes_at(object, "n"), e = bytes_at(object, "e");
  if (!n || !e || n->size() > kRsaBitsMax / 8 + 1 || e->size() > kExponentBytes) return nullptr;
  const Number modulus = number_of(*n), exponent = number_of(*e);
  if (!modulus || !exponent || !BN_is_odd(modulus.get()) || !BN_is_odd(exponent.get()) ||
      BN_is_one(exponent.get()) || BN_num_bits(modulus.get()) < kRsaBitsMin ||
      BN_num_bits(modulus.get()) > kRsaBitsMax)
    return nullptr;
  const Builder builder(OSSL_PARAM_BLD_new());
  if (!builder ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, modulus.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, exponent.get()) != 1)
    return nullptr;
  return key_of("RSA", builder.get());
}

struct Curve {
  std::string_view name;
  const char* group;
  std::size_t bytes;  // of a coordinate, and of each half of a signature
};
constexpr Curve kCurves[] = {
    {"P-256", "prime256v1", 32}, {"P-384", "secp384r1", 48}, {"P-521", "secp521r1", 66}};

// OpenSSL refuses a point that is not on the curve.
std::shared_ptr<void> ec_key(const nlohmann::json& object, const Curve& curve) {
  const auto x = bytes_at(object, "x"), y = bytes_at(object, "y");
  if (!x || !y || x->size() != curve.bytes || y->size() != curve.bytes) return nullptr;
  Bytes point{POINT_CONVERSION_UNCOMPRESSED};
  point.insert(point.end(), x->begin(), x->end());
  point.insert(point.end(), y->begin(), y->end());
  const Builder builder(OSSL_PARAM_BLD_new());
  if (!builder ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, curve.group, 0) !=
          1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) != 1)
    return nullptr;
  return key_of("EC", builder.get());
}

// A signature of RFC 7518 is two numbers of equal length; OpenSSL wants them in DER.
std::optional<Bytes> der_of(ByteView signature, std::size_t half) {
  if (signature.size() != 2 * half) return std::nullopt;
  const EcSignature pair(ECDSA_SIG_new());
  Number r = number_of(signature.first(half)), s = number_of(signature.last(half));
  if (!pair || !r || !s || ECDSA_SIG_set0(pair.get(), r.get(), s.get()) != 1) return std::nullopt;
  (void)r.release();  // the pair's now
  (void)s.release();
  std::uint8_t* der = nullptr;
  const int size = i2d_ECDSA_SIG(pair.get(), &der);
  if (size <= 0) return std::nullopt;
  Bytes bytes(der, der + size);
  OPENSSL_free(der);
  return bytes;
}

// Whether the key's owner means it for signatures.
bool signs(const nlohmann::json& object) {
  if (object.contains("use") && text_at(object, "use") != "sig") return false;
  const auto found = object.find("key_ops");
  if (found == object.end()) return true;
  return found->is_array() && std::find(found->begin(), found->end(), "verify") != found->end();
}

}  // namespace

// Reads one key of a set.
struct KeyReader {
  static std::optional<ProviderKey> read(const nlohmann::json& object) {
    if (!object.is_object() || !signs(object)) return std::nullopt;
    ProviderKey key;
    for (const auto& [name, out] :
         {std::pair<const char*, std::string*>{"kid", &key.id_}, {"alg", &key.only_}}) {
      if (!object.contains(name)) continue;
      auto text = text_at(object, name);
      if (!text || text->empty() || text->size() > kIdBytes) return std::nullopt;
      *out = std::move(*text);
    }
    const auto type = text_at(object, "kty");
    if (type == "RSA") {
      key.key_ = rsa_key(object);
    } else if (type == "EC") {
      const auto name = text_at(object, "crv");
      const auto* const curve = std::find_if(std::begin(kCurves), std::end(kCurves),
                                             [&](const Curve& c) { return name == c.name; });
      if (curve == std::end(kCurves)) return std::nullopt;
      key.type_ = static_cast<ProviderKey::Type>(1 + (curve - std::begin(kCurves)));
      key.key_ = ec_key(object, *curve);
    }
    if (!key.key_) return std::nullopt;
    return key;
  }
};

bool parse_algorithm(std::string_view name, Algorithm& out) {
  for (const AlgorithmRow& row : kAlgorithms)
    if (row.name == name) {
      out = row.algorithm;
      return true;
    }
  return false;
}

std::string known_algorithms() {
  std::string text;
  for (const AlgorithmRow& row : kAlgorithms)
    text += (text.empty()                        ? ""
             : &row == std::end(kAlgorithms) - 1 ? " or "
                                                 : ", ") +
            std::string(row.name);
  return text;
}

bool ProviderKey::fits(Algorithm algorithm) const {
  if (!only_.empty() && only_ != row_of(algorithm).name) return false;
  switch (type_) {
    case Type::kRsa:
      return !is_ec(algorithm);
    case Type::kP256:
      return algorithm == Algorithm::kEs256;
    case Type::kP384:
      return algorithm == Algorithm::kEs384;
    case Type::kP521:
      return algorithm == Algorithm::kEs512;
  }
  return false;
}

bool ProviderKey::verifies(Algorithm algorithm, std::string_view text, ByteView signature) const {
  if (!fits(algorithm)) return false;
  Bytes der;
  if (is_ec(algorithm)) {
    const auto half = kCurves[static_cast<std::size_t>(type_) - 1].bytes;
    auto made = der_of(signature, half);
    if (!made) return false;
    der = std::move(*made);
    signature = der;
  }
  const DigestContext context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* options = nullptr;  // the context's
  if (!context || EVP_DigestVerifyInit(context.get(), &options, row_of(algorithm).digest(), nullptr,
                                       static_cast<EVP_PKEY*>(key_.get())) != 1)
    return false;
  if (is_pss(algorithm) && (EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) != 1 ||
                            EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST) != 1))
    return false;
  return EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
}

Result<KeySet> parse_key_set(std::string_view text) {
  if (text.size() > kKeySetBytes) return bad_input("has more than 256 KiB, expected a key set");
  STARLING_TRY(set, parse_json(text));
  const auto keys = set.is_object() ? set.find("keys") : set.end();
  if (keys == set.end() || !keys->is_array())
    return bad_input("is no key set, expected an object with \"keys\"");
  if (keys->size() > kKeysMax)
    return bad_input("has " + std::to_string(keys->size()) + " keys, expected at most " +
                     std::to_string(kKeysMax));
  KeySet read;
  for (const nlohmann::json& object : *keys)
    if (auto key = KeyReader::read(object)) read.keys.push_back(std::move(*key));
  if (read.keys.empty()) return bad_input("has no key that signs with " + known_algorithms());
  return read;
}

Result<Bytes> base64url(std::string_view text) {
  Bytes bytes(text.size());
  std::size_t size = 0;
  const char* end = nullptr;
  if (sodium_base642bin(bytes.data(), bytes.size(), text.data(), text.size(), nullptr, &size, &end,
                        sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
      end != text.data() + text.size())
    return bad_input("is not base64url");
  bytes.resize(size);
  return bytes;
}

std::string shown_json(std::string text) {
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "..";
  return text;
}

}  // namespace starling::oidc
