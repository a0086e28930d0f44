#include "core/job/identity_reader.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/base/named_path.h"
#include "core/job/job.h"

namespace starling {
namespace {

using namespace job_words;

constexpr std::size_t kClaims = 32, kClaimValues = 64, kClaimDepth = 8, kClaimBytes = 1024;

bool is_plain_key(const std::string& name) {
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), plain);
}

// Returns the values that a claim may have; none: the node is no text and no list of texts.
std::vector<std::string> values_of(const toml::node& node) {
  std::vector<std::string> values;
  const auto add = [&](const toml::node& one) {
    const auto* text = one.as_string();
    const bool fine = text && !text->get().empty() && text->get().size() <= kClaimBytes;
    if (fine) values.push_back(text->get());
    return fine;
  };
  const auto* list = node.as_array();
  if (list == nullptr) {
    add(node);
    return values;
  }
  if (list->size() > kClaimValues) return {};
  for (const toml::node& one : *list)
    if (!add(one)) return {};
  return values;
}

void read_claims(Section& s, const toml::table& table, std::vector<std::string>& path,
                 std::vector<ClaimRule>& claims) {
  for (const auto& [key, node] : table) {
    if (!s.good()) return;
    path.emplace_back(key.str());
    const std::string name = job_words::shown(claim_name(path), 200);
    if (path.size() > kClaimDepth || key.str().empty() || key.str().size() > kClaimBytes)
      return s.wrong("claims", "a claim has at most 8 names, one in the other, of 1 to 1024 bytes");
    if (node.is_table()) {
      read_claims(s, *node.as_table(), path, claims);
    } else {
      auto values = values_of(node);
      if (values.empty())
        return s.wrong("claims", "claim " + name + " must be a text or a list of up to 64 texts");
      std::sort(values.begin(), values.end());
      claims.push_back({path, std::move(values)});
    }
    if (claims.size() > kClaims) return s.wrong("claims", "there are more than 32 claims");
    path.pop_back();
  }
}

std::string host_of(const std::string& address, std::size_t begin) {
  const std::size_t end = std::min(address.find_first_of("/?#", begin), address.size());
  std::string host = address.substr(begin, end - begin);
  if (host.starts_with("[")) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

bool is_provider_address(const std::string& address) {
  const auto at = address.find("://");
  if (at == std::string::npos || address.size() > 2048) return false;
  // A password would be shown in lines about it, and a query or a fragment is no part of an issuer.
  const bool plain = std::all_of(address.begin(), address.end(), [](char c) {
    return c > ' ' && c <= '~' && c != '@' && c != '?' && c != '#' && c != '\\' && c != '"';
  });
  const std::string scheme = address.substr(0, at), host = host_of(address, at + 3);
  if (!plain || host.empty()) return false;
  if (scheme == "https") return true;
  return scheme == "http" && (host == "127.0.0.1" || host == "localhost" || host == "[::1]");
}

std::string claim_name(const std::vector<std::string>& path) {
  std::string text;
  for (const std::string& name : path)
    text += (text.empty() ? "" : ".") + (is_plain_key(name) ? name : quoted(name));
  return text;
}

void read_identity(Section s, const std::string& base, IdentitySpec& identity) {
  if (!s.there()) return;
  const std::string address = "an address with https:// (http:// at this machine alone)";
  s.text("issuer", identity.issuer, 2048, true);
  if (s.good() && !is_provider_address(identity.issuer))
    s.wrong("issuer", "issuer must be " + address + ", is " + job_words::shown(identity.issuer));
  s.text("audience", identity.audience, kClaimBytes, true);
  s.text("jwks", identity.jwks, 4096, false);
  if (has_scheme(identity.jwks) && !is_provider_address(identity.jwks))
    s.wrong("jwks",
            "jwks must be " + address + " or a file, is " + job_words::shown(identity.jwks));
  if (const toml::table* claims = s.table("claims"); claims && s.good()) {
    std::vector<std::string> path;
    read_claims(s, *claims, path, identity.claims);
    std::sort(identity.claims.begin(), identity.claims.end(),
              [](const ClaimRule& a, const ClaimRule& b) { return a.path < b.path; });
  }
  s.finish();
  if (!s.good() || identity.jwks.empty() || has_scheme(identity.jwks)) return;
  if (!path_of_this_machine(s, "jwks", identity.jwks, "a file")) return;
  std::error_code error;
  const std::filesystem::path folder = base.empty() ? "." : base;
  const auto path = named_path(folder / identity.jwks, error);
  if (!error) identity.jwks = path.string();
}

std::string identity_lines(const IdentitySpec& identity) {
  if (!identity.on()) return {};
  std::string text = "\n[identity]\nissuer = " + quoted(identity.issuer) +
                     "\naudience = " + quoted(identity.audience) + "\n";
  if (!identity.jwks.empty()) text += "jwks = " + quoted(identity.jwks) + "\n";
  if (identity.claims.empty()) return text;
  text += "\n[identity.claims]\n";
  for (const ClaimRule& rule : identity.claims)
    text += texts_line(claim_name(rule.path), rule.values);
  return text;
}

}  // namespace starling
