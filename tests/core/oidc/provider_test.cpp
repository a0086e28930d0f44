#include "core/formats/oidc/provider.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/core/data_folder.h"
#include "tests/core/oidc/signer.h"

namespace starling::oidc {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

const std::string kRealm = "https://id.example/realms/x";
const std::string kDiscovery = kRealm + "/.well-known/openid-configuration";
const std::string kKeys = "https://keys.example/jwks";
const auto kMoment = std::chrono::system_clock::time_point(std::chrono::seconds(1'800'000'000));

// A provider's web: what lies where, and how often it was asked.
struct Web {
  std::map<std::string, std::string> pages;
  std::vector<std::string> asked;
  std::string away;  // not empty: nobody answers
  std::string kept;  // Options::kept

  Provider provider(const std::string& jwks = {}) {
    Provider::Options options;
    options.rules.issuer = kRealm;
    options.rules.audience = "starling";
    options.rules.jwks = jwks;
    options.kept = kept;
    options.read = [this](const std::string& place) -> Result<std::string> {
      asked.push_back(place);
      if (!away.empty()) return Error(Code::kUnavailable, away);
      const auto found = pages.find(place);
      if (found == pages.end()) return Error(Code::kUnavailable, "it answers with status 404");
      return found->second;
    };
    return std::move(Provider::make(std::move(options))).value();
  }
  void has(const std::vector<json>& keys) {
    pages[kDiscovery] = json{{"issuer", kRealm}, {"jwks_uri", kKeys}}.dump();
    pages[kKeys] = set_of(keys);
  }
};

std::string token_of(const Signer& key) {
  return key.token("ES256",
                   json{{"iss", kRealm}, {"aud", "starling"}, {"exp", 1'800'003'600}}.dump());
}

// "": let in; else the line, with "later: " before it where the token may be shown again.
std::string said_by(Provider& provider, const std::string& token, std::chrono::seconds after) {
  const auto begin = Provider::Clock::time_point(1000h);
  const auto holder = provider.check(token, kMoment, begin + after);
  if (holder) return {};
  return (holder.error().code() == Code::kUnavailable ? "later: " : "") + holder.error().text();
}

TEST_CASE(
    "oidc: keys are asked for once an hour, and for a key that is not known every five seconds") {
  const Signer first = Signer::ec("first", "P-256"), second = Signer::ec("second", "P-256");
  Web web;
  web.has({first.jwk()});
  auto provider = web.provider();
  CHECK(said_by(provider, token_of(first), 0s) == "");
  CHECK(web.asked == std::vector<std::string>{kDiscovery, kKeys});
  for (int i = 1; i < 100; ++i) CHECK(said_by(provider, token_of(first), i * 30s) == "");
  CHECK(web.asked.size() == 2);
  // A key that is unknown is asked for, but not for each token.
  CHECK(
      said_by(provider, token_of(second), 3000s) ==
      "identity: the token is signed by key \"second\", which https://id.example/realms/x does not "
      "have");
  CHECK(web.asked.size() == 4);
  for (int i = 0; i < 100; ++i)  // it was asked for this one a moment ago
    CHECK(said_by(provider, token_of(second), 3004s).find("identity: the token is signed by key") ==
          0);
  CHECK(web.asked.size() == 4);
  CHECK(said_by(provider, token_of(first), 3004s) == "");
  web.has({second.jwk()});  // the provider changes its keys
  CHECK(said_by(provider, token_of(second), 3005s) == "");
  CHECK(said_by(provider, token_of(first), 3006s) ==
        "later: identity: https://id.example/realms/x had no such key a moment ago, and is asked "
        "again");
  CHECK(said_by(provider, token_of(first), 3010s).find("signed by key \"first\"") !=
        std::string::npos);
  CHECK(web.asked.size() == 8);
  // A token that is none asks for nothing.
  CHECK(said_by(provider, "x", 3100s).find("no three parts") != std::string::npos);
  CHECK(web.asked.size() == 8);
  CHECK(said_by(provider, token_of(second), 3010s + 3599s) == "");
  CHECK(web.asked.size() == 8);
  CHECK(said_by(provider, token_of(second), 3010s + 3600s) == "");
  CHECK(web.asked.size() == 10);
}

TEST_CASE("oidc: while the provider is away keys are good for an hour, and newcomers are told") {
  const Signer key = Signer::ec("key", "P-256");
  Web web;
  web.has({key.jwk()});
  web.away = "Connection refused";
  auto provider = web.provider();
  const std::string line =
      "later: identity: the keys of https://id.example/realms/x cannot be had: Connection "
      "refused; " +
      kDiscovery;
  CHECK(said_by(provider, token_of(key), 0s) == line);
  CHECK(said_by(provider, token_of(key), 4s) == line);
  CHECK(web.asked.size() == 1);
  web.away.clear();
  CHECK(said_by(provider, token_of(key), 5s) == "");
  web.away = "Connection refused";
  CHECK(said_by(provider, token_of(key), 3600s) == "");
  CHECK(said_by(provider, token_of(key), 3605s) == line);
}

// Goal: a coordinator that begins again while the provider is away lets its workers in.
TEST_CASE("oidc: keys of an earlier answer count for a day while the provider is away") {
  const Signer key = Signer::ec("key", "P-256"), next = Signer::ec("next", "P-256");
  const DataFolder folder;
  Web web;
  web.kept = folder.path() + "/keys";
  web.has({key.jwk()});
  {
    auto before = web.provider();
    CHECK(said_by(before, token_of(key), 0s) == "");
  }
  web.away = "Connection refused";
  web.asked.clear();
  auto provider = web.provider();
  CHECK(said_by(provider, token_of(key), 0s) == "");
  CHECK(said_by(provider, token_of(key), 59s) == "");
  CHECK(web.asked.size() == 1);
  CHECK(said_by(provider, token_of(key), 60s) == "");
  CHECK(web.asked.size() == 2);
  // Of a key that it has not, nobody can say whether the provider has it now.
  const std::string line =
      "later: identity: the keys of https://id.example/realms/x cannot be had: Connection "
      "refused; " +
      kDiscovery;
  CHECK(said_by(provider, token_of(next), 70s) == line);
  web.away.clear();
  web.has({next.jwk()});
  CHECK(said_by(provider, token_of(next), 76s) == "");
  CHECK(said_by(provider, token_of(key), 82s).find("signed by key \"key\"") != std::string::npos);
  // Another answer takes its place, and neither an old one nor what is none counts.
  web.away = "Connection refused";
  auto later = web.provider();
  const auto kept = std::filesystem::directory_iterator(folder.path())->path();
  CHECK(said_by(later, token_of(next), 0s) == "");
  CHECK(said_by(later, token_of(key), 1s) == line);
  std::filesystem::last_write_time(
      kept, std::filesystem::file_time_type::clock::now() - Provider::kKeptFor);
  auto old = web.provider();
  CHECK(said_by(old, token_of(next), 0s) == line);
  std::ofstream(kept) << "{}";
  auto none = web.provider();
  CHECK(said_by(none, token_of(next), 0s) == line);
}

// Goal: what the provider answers counts, also where that is that it has no such keys any more.
TEST_CASE("oidc: keys of an earlier answer count for no provider that answers, and for no other") {
  const Signer key = Signer::ec("key", "P-256");
  const DataFolder folder;
  Web web;
  web.kept = folder.path() + "/keys";
  web.has({key.jwk()});
  auto before = web.provider();
  CHECK(said_by(before, token_of(key), 0s) == "");
  web.pages[kKeys] = "{\"keys\":[]}";
  auto revoked = web.provider();
  CHECK(said_by(revoked, token_of(key), 0s).find("later: identity: the keys of ") == 0);
  web.away = "Connection refused";
  auto other = web.provider("https://other.example/jwks");
  CHECK(said_by(other, token_of(key), 0s).find("later: identity: the keys of ") == 0);
  auto same = web.provider();
  CHECK(said_by(same, token_of(key), 0s) == "");
}

TEST_CASE(
    "oidc: an answer of discovery counts only if it is of the job's issuer and names an address") {
  const Signer key = Signer::ec("key", "P-256");
  Web web;
  const auto said = [&](const json& discovery) {
    web.has({key.jwk()});
    web.pages[kDiscovery] = discovery.dump();
    auto provider = web.provider();
    return said_by(provider, token_of(key), 0s);
  };
  const std::string begin =
      "later: identity: the keys of https://id.example/realms/x cannot be had: the answer ";
  CHECK(said({{"issuer", kRealm}, {"jwks_uri", kKeys}, {"more", 1}}) == "");
  CHECK(said({{"issuer", kRealm + "/"}, {"jwks_uri", kKeys}}) ==
        begin +
            "is of issuer \"https://id.example/realms/x/\", expected "
            "\"https://id.example/realms/x\"; " +
            kDiscovery);
  for (const std::string bad : {"http://keys.example/jwks", "file:///etc/passwd", "/jwks", "",
                                "https://", "https://u:p@x/", "http://127.0.0.1.x.example/"})
    CHECK(said({{"issuer", kRealm}, {"jwks_uri", bad}}) ==
          begin + "has jwks_uri \"" + bad + "\", expected an address with https://; " + kDiscovery);
  CHECK(said(json::array()).find("is of issuer \"\"") != std::string::npos);
  web.has({key.jwk()});
  web.pages[kKeys] = "{}";
  auto no_keys = web.provider();
  CHECK(said_by(no_keys, token_of(key), 0s) ==
        begin + "is no key set, expected an object with \"keys\"; " + kKeys);
  web.pages.erase(kKeys);
  auto nothing = web.provider();
  CHECK(said_by(nothing, token_of(key), 0s).find("it answers with status 404; " + kKeys) !=
        std::string::npos);
  web.pages[kDiscovery] = std::string((64u << 10) + 1, ' ');
  auto large = web.provider();
  CHECK(said_by(large, token_of(key), 0s).find("has more than 64 KiB") != std::string::npos);
}

TEST_CASE("oidc: where the job says the keys' place, discovery is not asked") {
  const Signer key = Signer::ec("key", "P-256");
  Web web;
  web.has({key.jwk()});
  auto provider = web.provider(kKeys);
  CHECK(said_by(provider, token_of(key), 0s) == "");
  CHECK(web.asked == std::vector<std::string>{kKeys});
}

TEST_CASE("oidc: files that are not there or hold no keys are told when the provider is made") {
  Provider::Options options;
  options.rules.issuer = kRealm;
  options.rules.audience = "x";
  options.rules.jwks = "/nowhere/jwks.json";
  const auto missing = Provider::make(options);
  REQUIRE(!missing);
  CHECK(missing.error().text().find("expected a key set (JWKS)") != std::string::npos);
  options.rules.jwks = "/etc/hostname";
  const auto other = Provider::make(options);
  REQUIRE(!other);
  CHECK(other.error().text().find("[identity].jwks is /etc/hostname") != std::string::npos);
  options.rules.jwks.clear();
  options.ca_file = "/nowhere/ca.pem";
  CHECK(!Provider::make(options));
}

}  // namespace
}  // namespace starling::oidc
