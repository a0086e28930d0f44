#pragma once
// All that a worker on another machine needs to join a job, in one line of text: where the
// coordinators listen, their public keys (which are the job's identity), and one worker's key.
//
//   starling-join-1.BASE64
//
// The line is a secret: its holder can act as that worker. A line without a worker's key, the public one, is no secret:
// it is for workers that make a key for each life and show a token of an identity provider (docs/identity.md). In base64 (URL-safe, without padding)
// are a key file (core/base/keys.h) with a comment line that names the addresses, and a check sum,
// so that a line which was cut while it was copied is refused for that reason.

#include <string>

#include "core/base/keys.h"
#include "core/base/result.h"

namespace starling {

struct JoinToken {
  std::string addresses;  // of coordinator-0.., separated by commas; of spares if known
  KeyRing keys;  // the coordinators' public halves and, but in a public one, one worker's pair

  bool is_public() const { return !keys.has_secrets(); }
  const KeyPair& worker() const;  // its pair (checked)
  bool operator==(const JoinToken& other) const;
};

// The token of this worker of the ring. Errors: kBadInput  no worker of that name, or its secret is
// not there.
Result<JoinToken> make_join_token(const KeyRing& ring, const std::string& name,
                                  const std::string& addresses);
// The public one. Errors: kBadInput  no coordinator's key is in the ring.
Result<JoinToken> make_public_join_token(const KeyRing& ring, const std::string& addresses);
std::string format_join_token(const JoinToken& token);
// Whether a text is meant to be a token.
bool is_join_token(const std::string& text);
// Errors: kBadInput  cut, changed, or of another version. Error texts have no part of the token.
Result<JoinToken> parse_join_token(const std::string& text);

}  // namespace starling
