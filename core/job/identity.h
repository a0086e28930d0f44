#pragma once
// IdentitySpec says which workers may join with a token of an OIDC provider instead of a key of the job
// (docs/identity.md): the section [identity] of a job file.

#include <string>
#include <vector>

namespace starling {

// A ClaimRule is what a claim of a token has to be.
struct ClaimRule {
  std::vector<std::string> path;    // names, from the outermost object to the claim
  std::vector<std::string> values;  // one of which it must be; of a list one of its entries
  bool operator==(const ClaimRule&) const = default;
};

struct IdentitySpec {
  std::string issuer;    // the provider's, as its tokens name it; empty: no token lets anybody in
  std::string audience;  // one that tokens must have
  std::string jwks;      // address or file of the provider's keys; empty: its discovery names them
  std::vector<ClaimRule> claims;  // all must hold; by their paths, ascending
  bool on() const { return !issuer.empty(); }
  bool operator==(const IdentitySpec&) const = default;
};

// Whether a provider may be asked at this address: https, or http at an address of this machine itself.
bool is_provider_address(const std::string& address);
// Whether it is an address at all, and no file.
inline bool has_scheme(const std::string& text) {
  return text.find("://") != std::string::npos;
}

// Writes a path as TOML does: "kubernetes.io".namespace.
std::string claim_name(const std::vector<std::string>& path);
// Writes the section as it is read; empty without one.
std::string identity_lines(const IdentitySpec& identity);

}  // namespace starling
