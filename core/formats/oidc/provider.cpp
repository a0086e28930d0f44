#include "core/formats/oidc/provider.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "core/base/check.h"
#include "core/base/file_system.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/text.h"
#include "core/formats/s3/http.h"
#include "core/formats/synced_file.h"

namespace starling::oidc {
namespace {

constexpr std::size_t kDiscoveryBytes = 64u << 10;

Result<std::string> read_file(const std::string& path) {
  STARLING_TRY(is_file(path, "a key set (JWKS)"));
  std::ifstream file(path, std::ios::binary);
  std::string text(kKeySetBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.is_open()) return bad_input("cannot be read; " + path);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

Result<std::string> read_address(const std::string& address, const std::string& ca_file) {
  STARLING_TRY(http, s3::Http::open());
  s3::HttpCall call;
  call.method = "GET";
  call.url = address;
  call.headers = {{"Accept", "application/json"}};
  call.answer_max = kKeySetBytes;
  call.hasty = true;
  call.within = Provider::kAnswerWithin;
  call.ca_file = ca_file;
  call.ca_option = "--identity-ca";
  STARLING_TRY(reply, http->send(call));
  if (reply.status != 200)
    return Error(reply.status >= 500 || reply.status == 429 ? Code::kUnavailable : Code::kBadInput,
                 "it answers with status " + std::to_string(reply.status));
  return std::move(reply.body);
}

}  // namespace

Result<std::string> parse_discovery(std::string_view text, const std::string& issuer) {
  if (text.size() > kDiscoveryBytes) return bad_input("has more than 64 KiB");
  STARLING_TRY(found, parse_json(text));
  const auto text_at = [&](const char* name) {
    const auto at = found.is_object() ? found.find(name) : found.end();
    return found.is_object() && at != found.end() && at->is_string() ? at->get<std::string>() : "";
  };
  const std::string said = text_at("issuer"), keys = text_at("jwks_uri");
  const auto quoted = [](const std::string& foreign) {
    return shown_json(nlohmann::json(foreign).dump(-1, ' ', true));
  };
  if (said != issuer)
    return bad_input("is of issuer " + quoted(said) + ", expected " + quoted(issuer));
  if (!is_provider_address(keys))
    return bad_input("has jwks_uri " + quoted(keys) + ", expected an address with https://");
  return keys;
}

Result<Provider> Provider::make(Options options) {
  if (!options.ca_file.empty()) {
    STARLING_TRY(is_file(options.ca_file, "the certificates of an identity provider's CA"));
  }
  const std::string& keys = options.rules.jwks;
  if (!options.read && !keys.empty() && !has_scheme(keys)) {
    STARLING_TRY(text, read_file(keys));
    if (auto set = parse_key_set(text); !set)
      return bad_input("the file " + set.error().text() + "; [identity].jwks is " + keys);
  } else if (!options.read) {
    if (auto http = s3::Http::open(); !http) return std::move(http).error().in("[identity]");
  }
  if (!options.read)
    options.read = [ca = options.ca_file](const std::string& place) {
      return has_scheme(place) ? read_address(place, ca) : read_file(place);
    };
  if (!options.kept.empty()) {  // of this provider, and of no other that the job had before
    const std::string whose = options.rules.issuer + "\n" + options.rules.jwks;
    options.kept += "-" + hex(hash64(as_bytes(std::span<const char>(whose)))) + ".json";
  }
  return Provider(std::move(options));
}

Result<std::string> Provider::keys_address() const {
  if (!options_.rules.jwks.empty()) return options_.rules.jwks;
  std::string address = options_.rules.issuer;
  while (address.ends_with("/")) address.pop_back();
  address += "/.well-known/openid-configuration";
  auto text = options_.read(address);
  if (!text) return std::move(text).error().in(address);
  auto keys = parse_discovery(text.value(), options_.rules.issuer);
  if (!keys) return bad_input("the answer " + keys.error().text() + "; " + address);
  return keys;
}

// The provider's own answer, as it came: it was believed then, and may be read by another build.
std::optional<KeySet> Provider::kept_keys() const {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto written = fs::last_write_time(options_.kept, error);
  if (options_.kept.empty() || error) return std::nullopt;
  const auto age = fs::file_time_type::clock::now() - written;
  if (age >= kKeptFor || age < -kKeptFor) return std::nullopt;
  auto text = read_file(options_.kept);
  auto keys = text ? parse_key_set(text.value()) : Result<KeySet>(std::move(text).error());
  return keys ? std::optional(std::move(keys).value()) : std::nullopt;
}

Result<KeySet> Provider::ask() const {
  auto keys = ask_now();
  if (keys || keys.error().code() != Code::kUnavailable) return keys;  // it says so itself
  auto kept = kept_keys();
  if (!kept) return keys;
  kept->why_kept = keys.error().text();
  return *std::move(kept);
}

Result<KeySet> Provider::ask_now() const {
  STARLING_TRY(address, keys_address());
  auto text = options_.read(address);
  if (!text) return std::move(text).error().in(address);
  auto keys = parse_key_set(text.value());
  if (!keys) return bad_input("the answer " + keys.error().text() + "; " + address);
  if (!options_.kept.empty()) {
    const ByteView answer = as_bytes(std::span<const char>(text.value()));
    (void)write_synced_file(options_.kept, {&answer, 1});  // else none is kept
  }
  return keys;
}

std::optional<Result<Holder>> Provider::check_known(const std::string& text,
                                                    std::chrono::system_clock::time_point now,
                                                    Clock::time_point at) {
  auto token = parse_token(text);
  if (!token) return Result<Holder>(std::move(token).error());
  const std::string& issuer = options_.rules.issuer;
  if (keys_ && at - keys_at_ >= kKeysFor) keys_.reset();
  const bool just_asked = asked_ && at - *asked_ < kBetweenAsks;
  const std::string& key = token.value().key;
  if (keys_ && (has_key_for(*keys_, token.value()) || (just_asked && missing_.contains(key))))
    return check_token(token.value(), *keys_, options_.rules, now);
  if (!just_asked) return std::nullopt;
  return Result<Holder>(
      Error(Code::kUnavailable,
            "identity: " + (why_not_.empty()
                                ? issuer + " had no such key a moment ago, and is asked again"
                                : why_not_)));
}

void Provider::answered(Result<KeySet> keys, const std::vector<std::string>& waiting,
                        Clock::time_point at) {
  asked_ = at;
  if (!keys) {
    why_not_ = "the keys of " + options_.rules.issuer + " cannot be had: " + keys.error().text();
    return;
  }
  keys_ = std::move(keys).value();
  if (const std::string& why = keys_->why_kept; !why.empty()) {
    keys_at_ = at - kKeysFor + kKeptBetweenAsks;
    why_not_ = "the keys of " + options_.rules.issuer + " cannot be had: " + why;
    return;
  }
  why_not_.clear();
  keys_at_ = at;
  if (missing_.size() >= kKeysMax) missing_.clear();
  for (const ProviderKey& key : keys_->keys) missing_.erase(key.id());
  for (const std::string& text : waiting)
    if (auto token = parse_token(text); token && !has_key_for(*keys_, token.value()))
      missing_.insert(token.value().key);
}

Result<Holder> Provider::check(const std::string& text, std::chrono::system_clock::time_point now,
                               Clock::time_point at) {
  auto known = check_known(text, now, at);
  if (!known) {
    answered(ask(), {text}, at);
    known = check_known(text, now, at);
  }
  STARLING_CHECK(known);
  return *std::move(known);
}

}  // namespace starling::oidc
