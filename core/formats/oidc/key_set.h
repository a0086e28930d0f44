#pragma once
// The public keys of an OIDC provider: a JSON Web Key Set (RFC 7517, RFC 7518).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling::oidc {

inline constexpr std::size_t kKeySetBytes = 256u << 10;
inline constexpr std::size_t kKeysMax = 64;

// What a signature is made with, by the words of RFC 7518. There is none for "none", and none with a shared secret.
enum class Algorithm : std::uint8_t {
  kRs256,
  kRs384,
  kRs512,
  kPs256,
  kPs384,
  kPs512,
  kEs256,
  kEs384,
  kEs512
};
// Returns whether there is an algorithm of that name.
bool parse_algorithm(std::string_view name, Algorithm& out);
// "RS256, .. or ES512"
std::string known_algorithms();

// A ProviderKey verifies signatures of the algorithms that are of its type. A value; cheap to copy.
class ProviderKey {
 public:
  const std::string& id() const { return id_; }  // `kid`; empty: it has none
  bool fits(Algorithm algorithm) const;
  // Whether the owner of the key has signed this text so. False also where OpenSSL cannot tell.
  bool verifies(Algorithm algorithm, std::string_view text, ByteView signature) const;

 private:
  friend struct KeyReader;
  enum class Type : std::uint8_t { kRsa, kP256, kP384, kP521 };
  std::string id_;
  std::string only_;  // `alg`; empty: any that is of its type
  Type type_ = Type::kRsa;
  std::shared_ptr<void> key_;  // EVP_PKEY
};

struct KeySet {
  std::vector<ProviderKey> keys;  // those that sign, in the provider's order
  std::string why_kept;  // why they are of an earlier answer; empty: the provider has them now
};

// Reads a set. Keys that sign nothing, of other types, or that are too short (RSA: 2048 to 8192 bits) are left out.
// Errors: kBadInput  it is none, is too large, or no key is left.
Result<KeySet> parse_key_set(std::string_view text);

// Decodes base64url without padding (RFC 7515). Errors: kBadInput  it is something else, also with bits that
// belong to no byte.
Result<Bytes> base64url(std::string_view text);

// Foreign text for a line: JSON's spelling in ASCII, at most 200 bytes.
std::string shown_json(std::string text);

}  // namespace starling::oidc
