#include "core/base/keys.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace starling {
namespace {

// A folder of its own that goes away with the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "starling-keys-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

unsigned mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777;
}

// RFC 32's example and the null keys of RFC 26's documentation.
TEST_CASE("keys: Z85 is that of the specification") {
  const Bytes hello{0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B};
  CHECK(z85_encode(hello) == "HelloWorld");
  const auto back = z85_decode("HelloWorld");
  REQUIRE(back);
  CHECK(back.value() == hello);
  CHECK(z85_encode({}) == "");
  CHECK(!z85_decode("Hell"));
  CHECK(!z85_decode("Hel o"));
  CHECK(!z85_decode("#####"));  // 85^5 - 1 does not fit 32 bits
}

TEST_CASE("keys: a ring has a pair for every place, all different") {
  const KeyRing ring = KeyRing::generate(3, 4);
  CHECK(ring.pairs().size() == 8);
  CHECK(ring.allow_list().size() == 8);
  CHECK(ring.numbered("worker").size() == 4);
  CHECK(ring.numbered("coordinator").size() == 3);
  CHECK(ring.numbered("client").empty());
  REQUIRE(ring.find("worker-3") != nullptr);
  CHECK(ring.find("worker-4") == nullptr);
  CHECK(ring.find("client")->secret_key.size() == kZ85KeyLength);
  CHECK(ring.allow_list().at(ring.find("worker-1")->public_key) == "worker-1");
}

TEST_CASE("keys: a saved ring is read back; secrets are for the owner only") {
  const Folder folder;
  const KeyRing ring = KeyRing::generate(1, 2);
  REQUIRE(ring.save(folder / "keys"));
  CHECK(mode_of(folder / "keys") == 0600);
  const auto loaded = KeyRing::load(folder / "keys");
  REQUIRE_MESSAGE(loaded, loaded.error().text());
  CHECK(loaded.value().pairs() == ring.pairs());

  REQUIRE(ring.public_part().save(folder / "public"));
  const auto shown = KeyRing::load(folder / "public");
  REQUIRE(shown);
  CHECK(!shown.value().has_secrets());
  CHECK(shown.value().allow_list() == ring.allow_list());

  const auto part = ring.part_for("worker-1");
  REQUIRE(part);
  CHECK(part.value().find("worker-1")->secret_key == ring.find("worker-1")->secret_key);
  CHECK(part.value().find("worker-0")->secret_key.empty());
  CHECK(!ring.part_for("worker-9"));
}

TEST_CASE("keys: no file is replaced, and an exposed one is refused") {
  const Folder folder;
  const KeyRing ring = KeyRing::generate(1, 1);
  REQUIRE(ring.save(folder / "keys"));
  const auto again = ring.save(folder / "keys");
  REQUIRE(!again);
  CHECK(again.error().code() == Code::kBadInput);

  REQUIRE(chmod((folder / "keys").c_str(), 0644) == 0);
  const auto exposed = KeyRing::load(folder / "keys");
  REQUIRE(!exposed);
  CHECK(exposed.error().text().find("0600") != std::string::npos);
  CHECK(!KeyRing::load(folder / "nothing"));
  CHECK(!KeyRing::load(folder / "."));
}

TEST_CASE("keys: a wrong file is named with its line, and no secret is printed") {
  const KeyRing ring = KeyRing::generate(1, 1);
  const KeyPair& a = ring.pairs()[0];
  const KeyPair& b = ring.pairs()[1];
  const std::string head = "starling-keys 1\n";
  struct Case {
    const char* name;
    std::string text;
    const char* says;
  };
  const Case cases[] = {
      {"empty", "", "line 1"},
      {"another version", "starling-keys 2\n", "line 1"},
      {"no key", head + "worker-0\n", "line 2"},
      {"too many words", head + "w " + a.public_key + " " + a.secret_key + " x\n", "line 2"},
      {"bad name", head + "Worker_0 " + a.public_key + "\n", "name"},
      {"short key", head + "\n# remark\nworker-0 abcde\n", "line 4"},
      {"secret of another", head + "w " + a.public_key + " " + b.secret_key + "\n", "belong"},
      {"name twice", head + "w " + a.public_key + "\nw " + b.public_key + "\n", "twice"},
      {"key twice", head + "w " + a.public_key + "\nv " + a.public_key + "\n", "also"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto ring_read = KeyRing::parse(c.text);
    REQUIRE(!ring_read);
    CHECK(ring_read.error().code() == Code::kBadInput);
    CHECK(ring_read.error().text().find(c.says) != std::string::npos);
    CHECK(ring_read.error().text().find(a.secret_key) == std::string::npos);
    CHECK(ring_read.error().text().find(b.secret_key) == std::string::npos);
  }
}

}  // namespace
}  // namespace starling
