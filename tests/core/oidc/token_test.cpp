#include "core/formats/oidc/token.h"

#include <openssl/hmac.h>

#include "tests/core/oidc/signer.h"

namespace starling::oidc {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

const std::string kIssuer = "https://id.example";
constexpr std::int64_t kNow = 1'800'000'000;
const auto kTime = std::chrono::system_clock::time_point(std::chrono::seconds(kNow));

// Making a key of RSA takes a while: the tests share them.
const Signer& key_a() {
  static const Signer key = Signer::rsa("a");
  return key;
}
const Signer& key_b() {
  static const Signer key = Signer::rsa("b");
  return key;
}
const Signer& key_of_curve(const std::string& curve) {
  static const Signer p256 = Signer::ec("P-256", "P-256"), p384 = Signer::ec("P-384", "P-384"),
                      p521 = Signer::ec("P-521", "P-521");
  return curve == "P-256" ? p256 : curve == "P-384" ? p384 : p521;
}

IdentitySpec rules() {
  IdentitySpec spec;
  spec.issuer = kIssuer;
  spec.audience = "starling";
  return spec;
}

json claims() {
  return {{"iss", kIssuer}, {"aud", "starling"},  {"sub", "system:serviceaccount:train:worker"},
          {"iat", kNow},    {"exp", kNow + 3600}, {"nbf", kNow}};
}

json with(const std::string& name, const json& value) {
  json changed = claims();
  changed[name] = value;
  return changed;
}

json without(const std::string& name) {
  json changed = claims();
  changed.erase(name);
  return changed;
}

KeySet keys_of(const std::vector<json>& keys) {
  auto set = parse_key_set(set_of(keys));
  REQUIRE_MESSAGE(set, set.error().text());
  return std::move(set).value();
}

// Returns why check_token() refuses a token; empty: the token lets its holder in.
std::string said_of(const std::string& token, const KeySet& keys,
                    const IdentitySpec& spec = rules(),
                    std::chrono::system_clock::time_point now = kTime) {
  auto head = parse_token(token);
  if (!head) return head.error().text();
  auto holder = check_token(head.value(), keys, spec, now);
  return holder ? "" : holder.error().text();
}

std::string said_of_claims(const json& payload, const IdentitySpec& spec = rules()) {
  return said_of(key_a().token("RS256", payload.dump()), keys_of({key_a().jwk()}), spec);
}

TEST_CASE("oidc: a token of each algorithm lets its holder in, and says who it is") {
  std::vector<json> all{key_b().jwk(), key_a().jwk()};
  for (const char* const curve : {"P-256", "P-384", "P-521"})
    all.push_back(key_of_curve(curve).jwk());
  const KeySet keys = keys_of(all);
  CHECK(keys.keys.size() == 5);
  for (const char* const algorithm : {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}) {
    CAPTURE(algorithm);
    CHECK(said_of(key_a().token(algorithm, claims().dump()), keys) == "");
  }
  CHECK(said_of(key_of_curve("P-256").token("ES256", claims().dump()), keys) == "");
  CHECK(said_of(key_of_curve("P-384").token("ES384", claims().dump()), keys) == "");
  CHECK(said_of(key_of_curve("P-521").token("ES512", claims().dump()), keys) == "");
  const auto head = parse_token(key_a().token("RS256", claims().dump()));
  CHECK(check_token(head.value(), keys, rules(), kTime).value().subject ==
        "\"system:serviceaccount:train:worker\"");
}

TEST_CASE("oidc: claims that do not hold are refused with the claim and what was expected") {
  CHECK(said_of_claims(with("aud", json::array({"x", "starling"}))) == "");
  CHECK(said_of_claims(with("aud", "x")) ==
        "identity: the token's audience is [\"x\"], expected \"starling\"");
  CHECK(said_of_claims(with("aud", json::array({"x", "y"}))) ==
        "identity: the token's audience is [\"x\",\"y\"], expected \"starling\"");
  CHECK(said_of_claims(with("aud", json::array())) ==
        "identity: the token's audience is [], expected \"starling\"");
  CHECK(said_of_claims(with("aud", json{{"starling", "starling"}})) ==
        "identity: the token's audience is [{\"starling\":\"starling\"}], expected \"starling\"");
  CHECK(said_of_claims(without("aud")) ==
        "identity: the token has no audience, expected \"starling\"");
  CHECK(
      said_of_claims(with("iss", "https://other.example")) ==
      "identity: the token's issuer is \"https://other.example\", expected \"https://id.example\"");
  CHECK(said_of_claims(with("iss", "https://id.example/")) ==
        "identity: the token's issuer is \"https://id.example/\", expected \"https://id.example\"");
  CHECK(said_of_claims(without("iss")) ==
        "identity: the token's issuer is not said, expected \"https://id.example\"");
  CHECK(said_of_claims(without("exp")) ==
        "identity: the token has no exp, so that it would never expire");
  for (const json& odd : {json("never"), json(-1), json(1e300), json(nullptr), json::array({kNow})})
    CHECK(said_of_claims(with("exp", odd)) ==
          "identity: the token's exp is " + odd.dump() + ", expected a time");
  CHECK(said_of_claims(without("iat")) == "");
  CHECK(said_of_claims(without("nbf")) == "");
}

TEST_CASE(
    "oidc: a token holds from nbf and iat, with a minute for clocks, until exp, without one") {
  CHECK(said_of_claims(with("exp", kNow + 1)) == "");
  CHECK(said_of_claims(with("exp", kNow)) ==
        "identity: the token expired 0 s ago, at 2027-01-15T08:00:00Z");
  CHECK(said_of_claims(with("exp", kNow - 3600)) ==
        "identity: the token expired 3600 s ago, at 2027-01-15T07:00:00Z");
  CHECK(said_of_claims(with("exp", kNow + 0.5)) == "");
  for (const std::string name : {"nbf", "iat"}) {
    CHECK(said_of_claims(with(name, kNow + 60)) == "");
    CHECK(said_of_claims(with(name, kNow + 61)) == "identity: the token's " + name +
                                                       " lies 61 s ahead, at 2027-01-15T08:01:01Z; "
                                                       "is a clock wrong?");
  }
  // The same token, again after its life.
  const std::string token = key_a().token("RS256", claims().dump());
  const KeySet keys = keys_of({key_a().jwk()});
  CHECK(said_of(token, keys, rules(), kTime + 3599s) == "");
  CHECK(said_of(token, keys, rules(), kTime + 3600s).find("the token expired") !=
        std::string::npos);
}

TEST_CASE("oidc: claims that the job lists must hold, also nested ones and lists") {
  IdentitySpec spec = rules();
  spec.claims = {{{"kubernetes.io", "namespace"}, {"prod", "train"}},
                 {{"sub"}, {"system:serviceaccount:train:worker"}}};
  json payload = claims();
  CHECK(said_of_claims(payload, spec) ==
        "identity: the token has no claim \"kubernetes.io\".namespace, expected one of "
        "[\"prod\",\"train\"]");
  payload["kubernetes.io"] = {{"namespace", "train"}};
  CHECK(said_of_claims(payload, spec) == "");
  payload["kubernetes.io"] = {{"namespace", json::array({"x", "train"})}};
  CHECK(said_of_claims(payload, spec) == "");
  for (const json& odd :
       {json("Train"), json("train "), json(1), json(true), json::object(), json::array({"x"})}) {
    payload["kubernetes.io"] = {{"namespace", odd}};
    CHECK(said_of_claims(payload, spec) ==
          "identity: the token's claim \"kubernetes.io\".namespace is " + odd.dump() +
              ", expected one of [\"prod\",\"train\"]");
  }
  payload["kubernetes.io"] = "train";
  CHECK(said_of_claims(payload, spec).find("has no claim") != std::string::npos);
  payload["kubernetes.io"] = {{"namespace", "train"}};
  payload["sub"] = "system:serviceaccount:train:other";
  CHECK(said_of_claims(payload, spec) ==
        "identity: the token's claim sub is \"system:serviceaccount:train:other\", expected "
        "\"system:serviceaccount:train:worker\"");
}

TEST_CASE("oidc: a token that is not signed, or with a shared secret, is refused") {
  const KeySet keys = keys_of({key_a().jwk()});
  const std::string body = encoded(claims().dump());
  const auto unsigned_with = [&](const std::string& algorithm) {
    return encoded(json{{"alg", algorithm}}.dump()) + "." + body + ".";
  };
  for (const std::string none : {"none", "None", "NONE", "nOnE"})
    CHECK(said_of(unsigned_with(none), keys) ==
          "identity: the token is not signed (alg is \"" + none + "\")");
  CHECK(said_of(unsigned_with("RS256"), keys) ==
        "identity: the token is not signed (its signature is empty)");
  // The attack of old: the public key, which everybody has, as the secret of an HMAC.
  const std::string text = encoded(json{{"alg", "HS256"}, {"kid", "a"}}.dump()) + "." + body;
  const std::string secret = key_a().jwk().dump();
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac, &size);
  CHECK(said_of(text + "." + encoded({reinterpret_cast<const char*>(mac), size}), keys) ==
        "identity: the token's algorithm is \"HS256\", expected RS256, RS384, RS512, PS256, PS384, "
        "PS512, ES256, ES384 or ES512");
  const json odd[] = {"EdDSA", "rs256", "", 256, nullptr, json::array({"RS256"})};
  for (const json& algorithm : odd)
    CHECK(said_of(encoded(json{{"alg", algorithm}}.dump()) + "." + body + ".AAAA", keys)
              .find("the token's algorithm is " + algorithm.dump()) != std::string::npos);
  CHECK(said_of(encoded("{}") + "." + body + ".AAAA", keys) ==
        "identity: the token's head has no alg");
}

TEST_CASE("oidc: a token of another key is refused, whatever it says of its key") {
  const KeySet keys = keys_of({key_a().jwk(), key_of_curve("P-256").jwk()});
  const std::string body = claims().dump();
  CHECK(said_of(key_b().token("RS256", body), keys) ==
        "identity: the token is signed by key \"b\", which https://id.example does not have");
  CHECK(said_of(key_b().token("RS256", body, {{"kid", "a"}}), keys) ==
        "identity: the token's signature is not that of key \"a\" of https://id.example");
  CHECK(said_of(key_a().token("RS256", body, {{"kid", "P-256"}}), keys) ==
        "identity: the token's algorithm does not fit key \"P-256\" of https://id.example");
  CHECK(said_of(key_of_curve("P-384").token("ES384", body, {{"kid", "P-256"}}), keys) ==
        "identity: the token's algorithm does not fit key \"P-256\" of https://id.example");
  // A key that comes along in the head is nobody's.
  CHECK(said_of(key_b().token("RS256", body, {{"kid", "a"}, {"jwk", key_b().jwk()}}), keys) ==
        "identity: the token's signature is not that of key \"a\" of https://id.example");
  // Every bit of a signature counts, and so does the text.
  const std::string good = key_a().token("RS256", body);
  const auto last = good.rfind('.');
  std::string changed = good;
  changed[last + 5] = changed[last + 5] == 'A' ? 'B' : 'A';
  CHECK(said_of(changed, keys).find("signature is not that of") != std::string::npos);
  std::string mixed = key_a().token("RS256", with("aud", "x").dump());
  mixed = mixed.substr(0, mixed.rfind('.')) + good.substr(last);
  CHECK(said_of(mixed, keys).find("signature is not that of") != std::string::npos);
  const std::string ec = key_of_curve("P-256").token("ES256", body);
  CHECK(said_of(ec.substr(0, ec.size() - 4), keys).find("signature is not") != std::string::npos);
  CHECK(said_of(ec.substr(0, ec.rfind('.')) + "." + encoded(std::string(64, '\0')), keys)
            .find("signature is not") != std::string::npos);
}

TEST_CASE("oidc: a token without a kid is that of the only key, and of none among several") {
  const Signer nameless = Signer::ec("", "P-256");
  const std::string token = nameless.token("ES256", claims().dump());
  CHECK(said_of(token, keys_of({nameless.jwk()})) == "");
  json named = nameless.jwk();
  named["kid"] = "x";
  CHECK(said_of(token, keys_of({named})) == "");
  CHECK(said_of(token, keys_of({named, key_a().jwk()})) ==
        "identity: the token names no key (kid), and https://id.example has 2");
  json head;
  for (const json& odd : {json(1), json(""), json(std::string(513, 'k'))}) {
    head["kid"] = odd;
    CHECK(said_of(nameless.token("ES256", claims().dump(), head), keys_of({named}))
              .find("expected the name of a key") != std::string::npos);
  }
}

TEST_CASE("oidc: what is no token is refused in one line that names the part") {
  const KeySet keys = keys_of({key_a().jwk()});
  const std::string good = key_a().token("RS256", claims().dump());
  const auto signed_text = [&](const std::string& head, const std::string& payload) {
    const std::string text = encoded(head) + "." + encoded(payload);
    return text + "." + encoded(key_a().sign_text("RS256", text));
  };
  const std::string head = R"({"alg":"RS256","kid":"a"})", deep(17, '['), end(17, ']');
  const std::pair<std::string, std::string> cases[] = {
      {"", "there is no token"},
      {std::string(kTokenBytes + 1, 'a'), "the token has more than 15 KiB"},
      {"abc", "the token has no three parts with dots between them"},
      {"a.b", "the token has no three parts with dots between them"},
      {good + ".x", "the token has more than three parts: it is encrypted, or no token"},
      {"\x01" + good, "the token's head is not base64url"},
      {good.substr(0, 4) + "+" + good.substr(5), "the token's head is not base64url"},
      {good + "=", "the token's signature is not base64url"},
      {encoded("[]") + ".AA.AA", "the token's head is no JSON object"},
      {encoded("{") + ".AA.AA", "the token's head is not JSON"},
      {encoded(head + '\0') + ".AA.AA", "the token's head is not JSON"},
      {encoded(R"({"alg":"RS256","alg":"none"})") + ".AA.AA",
       "the token's head has the key \"alg\" twice"},
      {encoded(R"({"alg":"RS256","x":[[[[]]]]})") + ".AA.AA",
       "the token's head is nested deeper than 4"},
      {encoded(R"({"alg":"RS256","x":")" + std::string(5000, 'x') + "\"}") + ".AA.AA",
       "the token's head is too long"},
      {signed_text(R"({"alg":"RS256","kid":"a","typ":"logout+jwt"})", claims().dump()),
       "the token's type is \"logout+jwt\", expected \"JWT\""},
      {signed_text(R"({"alg":"RS256","kid":"a","typ":7})", claims().dump()),
       "the token's type is 7, expected \"JWT\""},
      {signed_text(R"({"alg":"RS256","kid":"a","crit":["b64"],"b64":false})", claims().dump()),
       "the token wants extensions that are not known here (crit)"},
      {signed_text(head, "[1]"), "the token's payload is no JSON object"},
      {signed_text(head, "{\"aud\":\"starling\",\"aud\":\"x\"}"),
       "the token's payload has the key \"aud\" twice"},
      {signed_text(head, "{\"x\":" + deep + end + "}"),
       "the token's payload is nested deeper than 16"},
      {signed_text(head, "{\"iss\":\"\xff\"}"), "the token's payload is not JSON"},
      {signed_text(head, ""), "the token's payload is not JSON"},
  };
  for (const auto& [token, line] : cases) CHECK(said_of(token, keys) == "identity: " + line);
  for (const char* const type : {"JWT", "jwt", "at+jwt", "application/at+jwt"})
    CHECK(said_of(signed_text(json{{"alg", "RS256"}, {"kid", "a"}, {"typ", type}}.dump(),
                              claims().dump()),
                  keys) == "");
  // A long foreign text is cut, and a line stays one.
  const std::string line = said_of_claims(with("iss", std::string(3000, 'x') + "\n"));
  CHECK(line.size() < 400);
  CHECK(said_of_claims(with("iss", "a\nb\x7f\xc3\xa9")) ==
        "identity: the token's issuer is \"a\\nb\\u007f\\u00e9\", expected \"https://id.example\"");
}

TEST_CASE("oidc: of a key set only keys that may sign here are taken") {
  const json good = key_a().jwk();
  const auto refused = [](const std::string& text) {
    auto set = parse_key_set(text);
    return set ? std::string() : set.error().text();
  };
  const auto changed = [&](const char* name, const json& value, json from = key_a().jwk()) {
    from[name] = value;
    return from;
  };
  const json p256 = key_of_curve("P-256").jwk();
  const json unusable[] = {
      changed("use", "enc"),
      changed("use", 1),
      changed("key_ops", json::array({"encrypt"})),
      changed("key_ops", "verify"),
      changed("kty", "oct"),
      changed("kty", "OKP"),
      changed("kid", ""),
      changed("kid", 7),
      changed("n", "AQAB"),
      changed("n", "!"),
      changed("e", "AQ"),    // one
      changed("e", "AQAA"),  // even
      changed("e", encoded(std::string(9, '\x03'))),
      changed("n", encoded(std::string(2000, '\xff'))),
      changed("crv", "P-384", p256),
      changed("crv", "secp256k1", p256),
      changed("x", encoded(std::string(32, '\x01')), p256),  // no point of the curve
      changed("x", encoded(std::string(31, '\x01')), p256),
      json("key"),
  };
  for (const json& key : unusable) {
    CAPTURE(key.dump());
    CHECK(keys_of({key, good}).keys.size() == 1);
    CHECK(refused(set_of({key})).find("has no key that signs with RS256") == 0);
  }
  CHECK(keys_of({changed("use", "sig"), changed("key_ops", json::array({"verify"}))}).keys.size() ==
        2);
  CHECK(keys_of({Signer::rsa("short", 1024).jwk(), good}).keys.size() == 1);
  // A key that is for one algorithm is for that one alone.
  const KeySet only = keys_of({changed("alg", "PS256")});
  CHECK(said_of(key_a().token("PS256", claims().dump()), only) == "");
  CHECK(said_of(key_a().token("RS256", claims().dump()), only).find("does not fit") !=
        std::string::npos);
  CHECK(refused("[]") == "is no key set, expected an object with \"keys\"");
  CHECK(refused("{\"keys\":{}}") == "is no key set, expected an object with \"keys\"");
  CHECK(refused("<html>") == "is not JSON");
  CHECK(refused(set_of(std::vector<json>(65, good))) == "has 65 keys, expected at most 64");
  CHECK(refused(std::string(kKeySetBytes + 1, ' ')) == "has more than 256 KiB, expected a key set");
}

}  // namespace
}  // namespace starling::oidc
