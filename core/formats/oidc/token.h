#pragma once
// Tokens of an OIDC provider: JSON Web Tokens (RFC 7519) in the compact form of JWS (RFC 7515), and whether one says
// that its holder may join a job (docs/identity.md).

#include <chrono>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/formats/oidc/key_set.h"
#include "core/job/identity.h"

namespace starling::oidc {

inline constexpr std::size_t kTokenBytes = 15u << 10;
// By so much the clocks of a provider and of a coordinator may differ: `nbf` and `iat` may lie so far ahead. `exp` is
// taken as it is.
inline constexpr std::chrono::seconds kLeeway{60};

// A Token is one whose head has been read; nothing in it is believed yet.
struct Token {
  Algorithm algorithm = Algorithm::kRs256;
  std::string key;          // `kid`; empty: it names none
  std::string signed_text;  // what the signature is of
  Bytes payload, signature;
};

// Errors: kBadInput  it is no token, is not signed, or with none of known_algorithms(). All errors are one line that
// begins with "identity: ", for both sides.
Result<Token> parse_token(std::string_view text);

// Whether the set has a key that this token may be signed with.
bool has_key_for(const KeySet& keys, const Token& token);

// What a token that holds says of its holder.
struct Holder {
  std::string subject;  // `sub`, as JSON spells it, for a log; empty: none
};

// Whether a payload, whose signature holds, lets its holder in at this time: the issuer is the rules', one audience is
// theirs, `exp` lies ahead, `nbf` and `iat`, if there are any, do not (kLeeway), and all claims of the rules are as
// they say. Pure. Errors: kBadInput  which of that does not hold.
Result<Holder> check_claims(std::string_view payload, const IdentitySpec& rules,
                            std::chrono::system_clock::time_point now);

// Whether the token is signed with one of these keys, and its claims hold. Pure. Errors: kBadInput  which does not.
Result<Holder> check_token(const Token& token, const KeySet& keys, const IdentitySpec& rules,
                           std::chrono::system_clock::time_point now);

}  // namespace starling::oidc
