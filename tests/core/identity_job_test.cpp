// The section [identity] of a job file.
#include <doctest/doctest.h>

#include <string>

#include "core/job/job.h"
#include "tests/core/job_text.h"

namespace starling {
namespace {

const std::string kIdentity = R"([identity]
issuer = "https://oidc.example/id/ABC"
audience = "starling"
jwks = "https://oidc.example/keys"
[identity.claims]
sub = "system:serviceaccount:train:worker"
"kubernetes.io".namespace = ["train", "prod"]
"kubernetes.io".serviceaccount.name = "worker"
"https://x.example/groups" = "g"
)";

std::string claims(const std::string& text) {
  return kGood + "[identity]\nissuer = \"https://x\"\naudience = \"a\"\n[identity.claims]\n" + text;
}

TEST_CASE("[identity] is read, and written as it is read") {
  const auto job = parse_job(kGood + kIdentity, ".");
  REQUIRE_MESSAGE(job, job.error().text());
  const IdentitySpec& identity = job.value().identity;
  CHECK(identity.issuer == "https://oidc.example/id/ABC");
  CHECK(identity.audience == "starling");
  CHECK(identity.jwks == "https://oidc.example/keys");
  const std::vector<ClaimRule> rules = {{{"https://x.example/groups"}, {"g"}},
                                        {{"kubernetes.io", "namespace"}, {"prod", "train"}},
                                        {{"kubernetes.io", "serviceaccount", "name"}, {"worker"}},
                                        {{"sub"}, {"system:serviceaccount:train:worker"}}};
  CHECK(identity.claims == rules);
  const std::string text = format_job(job.value());
  CHECK(text.find("\n\"kubernetes.io\".serviceaccount.name = [\"worker\"]\n") != text.npos);
  CHECK(parse_job(text, "/").value() == job.value());
  CHECK(!parse_job(kGood, ".").value().identity.on());
  CHECK(format_job(parse_job(kGood, ".").value()).find("identity") == text.npos);
  const auto file = parse_job(replaced(kGood + kIdentity, "https://oidc.example/keys", "jwks.json"),
                              "/etc/starling");
  REQUIRE_MESSAGE(!file, "the data of this job are not there");
  const auto here =
      parse_job(replaced(kGood + kIdentity, "https://oidc.example/keys", "a/../k.json"), ".");
  REQUIRE_MESSAGE(here, here.error().text());
  CHECK(here.value().identity.jwks.ends_with("/k.json"));
  CHECK(here.value().identity.jwks.starts_with("/"));
}

TEST_CASE("[identity] is of the coordinators alone: no hash has it") {
  const Job plain = parse_job(kGood, ".").value(), job = parse_job(kGood + kIdentity, ".").value();
  CHECK(job_hash(job) == job_hash(plain));
  CHECK(state_hash(job) == state_hash(plain));
  CHECK(state_differences(job, plain).empty());
  CHECK(job_differences(job, plain).empty());
}

TEST_CASE("[identity] asks for an issuer, an audience, and addresses that cannot be listened to") {
  CHECK(error_of(kGood + "[identity]\naudience = \"a\"\n") ==
        "issuer is missing; [identity].issuer, line 18");
  CHECK(error_of(kGood + "[identity]\nissuer = \"https://x\"\n") ==
        "audience is missing; [identity].audience, line 18");
  const auto said = [](const std::string& key, const std::string& value) {
    return error_of(kGood + "[identity]\n" + (key == "issuer" ? "" : "issuer = \"https://x\"\n") +
                    key + " = \"" + value + "\"\naudience = \"a\"\n");
  };
  CHECK(said("issuer", "http://id.example") ==
        "issuer must be an address with https:// (http:// at this machine alone), is "
        "http://id.example; [identity].issuer, line 19");
  for (const std::string bad : {"id.example", "ftp://x", "https://", "https://a b", "https://u:p@x",
                                "https://x?y", "https://x#y", "http://127.0.0.1.example",
                                "http://localhost.example", "http://[::2]", "http://10.0.0.1"})
    CHECK(said("issuer", bad).find("issuer must be an address") == 0);
  for (const std::string good : {"https://x", "https://x:8443/a/b/", "http://127.0.0.1:9400",
                                 "http://localhost", "http://[::1]:80/x"})
    CHECK(said("issuer", good) == "no error");
  CHECK(said("jwks", "http://x/keys").find("jwks must be an address") == 0);
  CHECK(said("jwks", "https://x/keys") == "no error");
  CHECK(said("isuer", "https://x").find("unknown key `isuer`, did you mean `issuer`?") == 0);
}

TEST_CASE("[identity.claims] are texts and lists of texts, within bounds") {
  CHECK(error_of(claims("sub = \"x\"\n")) == "no error");
  for (const std::string bad : {"1", "true", "[]", "[1]", "[\"a\", 1]", "\"\"", "[[\"a\"]]"})
    CHECK(error_of(claims("x.y = " + bad + "\n"))
              .find("claim x.y must be a text or a list of up to 64 texts") == 0);
  CHECK(error_of(claims("a.b.c.d.e.f.g.h = \"x\"\n")) == "no error");
  CHECK(error_of(claims("a.b.c.d.e.f.g.h.i = \"x\"\n")).find("a claim has at most 8 names") == 0);
  std::string many;
  for (int i = 0; i < 33; ++i) many += "c" + std::to_string(i) + " = \"x\"\n";
  CHECK(error_of(claims(many)).find("there are more than 32 claims") == 0);
  CHECK(error_of(kGood + "[identity]\nissuer = \"https://x\"\naudience = \"a\"\nclaims = 1\n")
            .find("claims must be a table") == 0);
}

}  // namespace
}  // namespace starling
