#include "core/formats/oidc/token.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "core/base/json.h"
#include "core/wire/limits.h"

namespace starling::oidc {
namespace {

using nlohmann::json;
static_assert(kTokenBytes == limits::kTokenBytes);

constexpr int kHeadDepth = 4, kPayloadDepth = 16;
constexpr std::size_t kHeadBytes = 4096;
constexpr std::size_t kKeyIdBytes = 512;
constexpr double kTimeMax = 1e12;  // seconds; the year 33658

Error refused(const std::string& why) {
  return Error(Code::kBadInput, "identity: " + why);
}

std::string shown_value(const json& value) {
  return shown_json(value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace));
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The types of tokens that say who their holder is (RFC 7519, 9068); a provider signs others with the same keys.
bool is_type_of_token(const json& type) {
  if (!type.is_string()) return false;
  std::string name = lower(type.get<std::string>());
  if (name.starts_with("application/")) name.erase(0, std::string("application/").size());
  return name == "jwt" || name == "at+jwt";
}

Result<json> object_of(std::string_view encoded, std::size_t bytes_max, int depth,
                       const std::string& what) {
  auto bytes = base64url(encoded);
  if (!bytes) return refused("the token's " + what + " " + bytes.error().text());
  if (bytes.value().size() > bytes_max) return refused("the token's " + what + " is too long");
  auto read = parse_json(
      {reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()}, depth);
  if (!read) return refused("the token's " + what + " " + read.error().text());
  if (!read.value().is_object()) return refused("the token's " + what + " is no JSON object");
  return read;
}

std::string time_text(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  char text[32] = "";
  if (::gmtime_r(&time, &utc) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// Reads a time of RFC 7519, which may have a fraction.
Result<double> time_at(const json& claims, const char* name) {
  const json& value = claims.at(name);
  const double seconds = value.is_number() ? value.get<double>() : -1;
  if (!std::isfinite(seconds) || seconds < 0 || seconds > kTimeMax)
    return refused("the token's " + std::string(name) + " is " + shown_value(value) +
                   ", expected a time");
  return seconds;
}

// Returns whole seconds, rounded up: a time that has just passed is 1 s ago, not 0 s.
std::string span_text(double seconds) {
  return std::to_string(static_cast<long long>(std::ceil(seconds))) + " s";
}

Result<> check_times(const json& claims, std::chrono::system_clock::time_point at) {
  const double now = std::chrono::duration<double>(at.time_since_epoch()).count();
  if (!claims.contains("exp"))
    return refused("the token has no exp, so that it would never expire");
  STARLING_TRY(expires, time_at(claims, "exp"));
  if (now >= expires)
    return refused("the token expired " + span_text(now - expires) + " ago, at " +
                   time_text(expires));
  const auto leeway = static_cast<double>(kLeeway.count());
  for (const char* const name : {"nbf", "iat"}) {
    if (!claims.contains(name)) continue;
    STARLING_TRY(from, time_at(claims, name));
    if (from > now + leeway)
      return refused("the token's " + std::string(name) + " lies " + span_text(from - now) +
                     " ahead, at " + time_text(from) + "; is a clock wrong?");
  }
  return ok();
}

Result<> check_audience(const json& claims, const std::string& wanted) {
  const auto found = claims.find("aud");
  if (found == claims.end())
    return refused("the token has no audience, expected " + shown_value(wanted));
  const bool holds = found->is_array()
                         ? std::find(found->begin(), found->end(), wanted) != found->end()
                         : *found == wanted;
  if (holds) return ok();
  const json list = found->is_array() ? *found : json::array({*found});
  return refused("the token's audience is " + shown_value(list) + ", expected " +
                 shown_value(wanted));
}

std::string wanted_text(const ClaimRule& rule) {
  if (rule.values.size() == 1) return shown_value(rule.values.front());
  return "one of " + shown_value(rule.values);
}

Result<> check_claim(const json& claims, const ClaimRule& rule) {
  const json* at = &claims;
  for (const std::string& name : rule.path) {
    const auto found = at->is_object() ? at->find(name) : at->end();
    if (!at->is_object() || found == at->end())
      return refused("the token has no claim " + claim_name(rule.path) + ", expected " +
                     wanted_text(rule));
    at = &*found;
  }
  const auto is_wanted = [&](const json& value) {
    return value.is_string() && std::find(rule.values.begin(), rule.values.end(),
                                          value.get_ref<const std::string&>()) != rule.values.end();
  };
  if (at->is_array() ? std::any_of(at->begin(), at->end(), is_wanted) : is_wanted(*at)) return ok();
  return refused("the token's claim " + claim_name(rule.path) + " is " + shown_value(*at) +
                 ", expected " + wanted_text(rule));
}

Result<> check_signature(const Token& token, const KeySet& keys, const std::string& issuer) {
  const std::string of = token.key.empty() ? "" : " " + shown_value(token.key);
  const auto is_meant = [&](const ProviderKey& key) {
    return token.key.empty() || key.id() == token.key;
  };
  std::size_t named = 0, fitting = 0;
  for (const ProviderKey& key : keys.keys) {
    named += is_meant(key);
    fitting += is_meant(key) && key.fits(token.algorithm);
  }
  if (named == 0)
    return refused("the token is signed by key" + of + ", which " + issuer + " does not have");
  if (fitting == 0) return refused("the token's algorithm does not fit key" + of + " of " + issuer);
  if (token.key.empty() && keys.keys.size() > 1)
    return refused("the token names no key (kid), and " + issuer + " has " +
                   std::to_string(keys.keys.size()));
  for (const ProviderKey& key : keys.keys)
    if (is_meant(key) && key.verifies(token.algorithm, token.signed_text, token.signature))
      return ok();
  return refused("the token's signature is not that of key" + of + " of " + issuer);
}

}  // namespace

Result<Token> parse_token(std::string_view text) {
  if (text.empty()) return refused("there is no token");
  if (text.size() > kTokenBytes) return refused("the token has more than 15 KiB");
  std::array<std::string_view, 3> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t end = i < 2 ? text.find('.', begin) : text.size();
    if (end == text.npos) return refused("the token has no three parts with dots between them");
    parts[i] = text.substr(begin, end - begin);
    begin = end + 1;
  }
  if (parts[2].find('.') != text.npos)
    return refused("the token has more than three parts: it is encrypted, or no token");
  STARLING_TRY(head, object_of(parts[0], kHeadBytes, kHeadDepth, "head"));
  Token token;
  const auto algorithm = head.find("alg");
  if (algorithm == head.end()) return refused("the token's head has no alg");
  if (!algorithm->is_string() || !parse_algorithm(algorithm->get<std::string>(), token.algorithm)) {
    const bool none = algorithm->is_string() && lower(algorithm->get<std::string>()) == "none";
    return refused(none ? "the token is not signed (alg is " + shown_value(*algorithm) + ")"
                        : "the token's algorithm is " + shown_value(*algorithm) + ", expected " +
                              known_algorithms());
  }
  if (head.contains("typ") && !is_type_of_token(head.at("typ")))
    return refused("the token's type is " + shown_value(head.at("typ")) + ", expected \"JWT\"");
  if (head.contains("crit"))
    return refused("the token wants extensions that are not known here (crit)");
  if (const auto key = head.find("kid"); key != head.end()) {
    if (!key->is_string() || key->get<std::string>().empty() ||
        key->get<std::string>().size() > kKeyIdBytes)
      return refused("the token's kid is " + shown_value(*key) + ", expected the name of a key");
    token.key = key->get<std::string>();
  }
  auto payload = base64url(parts[1]);
  if (!payload) return refused("the token's payload " + payload.error().text());
  auto signature = base64url(parts[2]);
  if (!signature) return refused("the token's signature " + signature.error().text());
  if (signature.value().empty()) return refused("the token is not signed (its signature is empty)");
  token.payload = std::move(payload).value();
  token.signature = std::move(signature).value();
  token.signed_text = text.substr(0, parts[0].size() + 1 + parts[1].size());
  return token;
}

bool has_key_for(const KeySet& keys, const Token& token) {
  return std::any_of(keys.keys.begin(), keys.keys.end(), [&](const ProviderKey& key) {
    return token.key.empty() || key.id() == token.key;
  });
}

Result<Holder> check_claims(std::string_view payload, const IdentitySpec& rules,
                            std::chrono::system_clock::time_point now) {
  auto read = parse_json(payload, kPayloadDepth);
  if (!read) return refused("the token's payload " + read.error().text());
  const json& claims = read.value();
  if (!claims.is_object()) return refused("the token's payload is no JSON object");
  const auto issuer = claims.find("iss");
  if (issuer == claims.end() || *issuer != rules.issuer)
    return refused("the token's issuer is " +
                   (issuer == claims.end() ? "not said" : shown_value(*issuer)) + ", expected " +
                   shown_value(rules.issuer));
  STARLING_TRY(check_audience(claims, rules.audience));
  STARLING_TRY(check_times(claims, now));
  for (const ClaimRule& rule : rules.claims) {
    STARLING_TRY(check_claim(claims, rule));
  }
  const auto subject = claims.find("sub");
  return Holder{subject == claims.end() ? "" : shown_value(*subject)};
}

Result<Holder> check_token(const Token& token, const KeySet& keys, const IdentitySpec& rules,
                           std::chrono::system_clock::time_point now) {
  STARLING_TRY(check_signature(token, keys, rules.issuer));
  return check_claims({reinterpret_cast<const char*>(token.payload.data()), token.payload.size()},
                      rules, now);
}

}  // namespace starling::oidc
