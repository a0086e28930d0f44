#include "core/base/join_token.h"

#include <doctest/doctest.h>

namespace starling {
namespace {

constexpr const char* kAt = "10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000";

TEST_CASE("a join token is one line that says everything, and no secret but its worker's") {
  const KeyRing ring = KeyRing::generate(3, 64);
  const auto token = make_join_token(ring, "worker-7", kAt);
  REQUIRE_MESSAGE(token, token.error().text());
  const std::string line = format_join_token(token.value());
  CHECK(is_join_token(line));
  CHECK(line.find_first_of(" \n\t'\"\\$") == std::string::npos);
  CHECK(line.size() < 1024);
  const auto back = parse_join_token(line);
  REQUIRE_MESSAGE(back, back.error().text());
  CHECK(back.value() == token.value());
  CHECK(back.value().addresses == kAt);
  CHECK(back.value().worker() == *ring.find("worker-7"));
  for (const KeyPair& pair : back.value().keys.pairs())
    CHECK(pair.secret_key.empty() == (pair.name != "worker-7"));
  CHECK(back.value().keys.find("worker-0") == nullptr);
}

TEST_CASE("a join token has the public halves of spares, and says how many coordinators begin") {
  const KeyRing ring = KeyRing::generate(3, 1, 4);
  const auto token = make_join_token(ring, "worker-0", kAt);
  REQUIRE(token);
  const auto back = parse_join_token(format_join_token(token.value()));
  REQUIRE_MESSAGE(back, back.error().text());
  CHECK(back.value() == token.value());
  CHECK(back.value().keys.founders() == 3);
  CHECK(back.value().keys.numbered("coordinator").size() == 7);
}

TEST_CASE("a join token is for workers, of keys that are there, with addresses") {
  const KeyRing ring = KeyRing::generate(1, 2);
  CHECK(!make_join_token(ring, "coordinator-0", "a:1"));
  CHECK(!make_join_token(ring, "client", "a:1"));
  CHECK(!make_join_token(ring, "worker-2", "a:1"));
  CHECK(!make_join_token(ring.public_part(), "worker-0", "a:1"));
  CHECK(!make_join_token(ring, "worker-0", ""));
  CHECK(!make_join_token(ring, "worker-0", "a:1\nb"));
}

TEST_CASE("a public join line has the coordinators' public keys and addresses, and no secret") {
  const KeyRing ring = KeyRing::generate(3, 4, 2);
  const auto token = make_public_join_token(ring, kAt);
  REQUIRE_MESSAGE(token, token.error().text());
  CHECK(token.value().is_public());
  CHECK(!make_join_token(ring, "worker-0", kAt).value().is_public());
  const auto back = parse_join_token(format_join_token(token.value()));
  REQUIRE_MESSAGE(back, back.error().text());
  CHECK(back.value() == token.value());
  CHECK(back.value().keys.founders() == 3);
  CHECK(back.value().keys.pairs().size() == 5);
  for (const KeyPair& pair : back.value().keys.pairs()) {
    CHECK(role_of(pair.name) == Role::kCoordinator);
    CHECK(pair.secret_key.empty());
  }
  CHECK(make_public_join_token(ring.public_part(), kAt));
  CHECK(!make_public_join_token(ring, ""));
  CHECK(!make_public_join_token(KeyRing(), kAt));
}

TEST_CASE("a join line with a secret that is none of a worker's is refused") {
  const KeyRing ring = KeyRing::generate(1, 2);
  CHECK(!parse_join_token(format_join_token({kAt, ring})));
  CHECK(!parse_join_token(format_join_token({kAt, ring.part_for("coordinator-0").value()})));
  CHECK(!parse_join_token(format_join_token({kAt, ring.part_for("client").value()})));
}

// Goal: a line that was cut or mistyped is refused for that reason. Method: every prefix, and every
// character replaced by another one.
TEST_CASE("a join token that is not whole is refused, and none of it is said again") {
  const KeyRing ring = KeyRing::generate(1, 1);
  const std::string line = format_join_token(make_join_token(ring, "worker-0", "a:1").value());
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto cut = parse_join_token(line.substr(0, i));
    REQUIRE(!cut);
    std::string other = line;
    other[i] = other[i] == 'A' ? 'B' : 'A';
    const auto changed = parse_join_token(other);
    REQUIRE(!changed);
    CHECK(changed.error().code() == Code::kBadInput);
    CHECK(changed.error().text().find(ring.find("worker-0")->secret_key) == std::string::npos);
  }
  CHECK(!parse_join_token(std::string(100000, 'A')));
  CHECK(!is_join_token("10.0.0.1:7000"));
}

}  // namespace
}  // namespace starling
