#include "core/base/keys.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace starling {
namespace {

// A folder of its own that goes away with the test.
class KeyFolder {
 public:
  KeyFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "starling-keys-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~KeyFolder() {
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
  CHECK(ring.pairs().size() == 9);
  CHECK(ring.allow_list().size() == 9);
  CHECK(ring.numbered("worker").size() == 4);
  CHECK(ring.numbered("coordinator").size() == 3);
  CHECK(ring.numbered("client").empty());
  REQUIRE(ring.find("worker-3") != nullptr);
  CHECK(ring.find("worker-4") == nullptr);
  CHECK(ring.find("client")->secret_key.size() == kZ85KeyLength);
  CHECK(ring.find("admin")->secret_key.size() == kZ85KeyLength);
  CHECK(ring.allow_list().at(ring.find("worker-1")->public_key) == "worker-1");
}

TEST_CASE("keys: a saved ring is read back; secrets are for the owner only") {
  const KeyFolder folder;
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
}

std::size_t secrets_in(const KeyRing& ring) {
  std::size_t n = 0;
  for (const KeyPair& pair : ring.pairs()) n += pair.secret_key.empty() ? 0 : 1;
  return n;
}

TEST_CASE(
    "keys: a process gets its own secret and no other; a worker learns of coordinators only") {
  const KeyRing ring = KeyRing::generate(3, 4);
  const auto worker = ring.part_for("worker-1");
  REQUIRE(worker);
  CHECK(secrets_in(worker.value()) == 1);
  CHECK(*worker.value().find("worker-1") == *ring.find("worker-1"));
  CHECK(worker.value().find("worker-0") == nullptr);
  CHECK(worker.value().find("client") == nullptr);
  CHECK(worker.value().numbered("coordinator").size() == 3);
  const auto coordinator = ring.part_for("coordinator-1");
  REQUIRE(coordinator);
  CHECK(secrets_in(coordinator.value()) == 1);
  CHECK(coordinator.value().allow_list() == ring.allow_list());
  CHECK(!ring.part_for("worker-9"));
}

TEST_CASE("keys: split keys are a file for each process, and together the whole ring") {
  const KeyFolder folder;
  const KeyRing ring = KeyRing::generate(3, 12);
  REQUIRE(ring.split(folder / "split"));
  CHECK(mode_of(folder / "split") == 0700);
  for (const KeyPair& pair : ring.pairs()) {
    CAPTURE(pair.name);
    const std::string file = (folder / "split") + "/" + pair.name;
    CHECK(mode_of(file) == 0600);
    const auto part = KeyRing::load_for(folder / "split", pair.name);
    REQUIRE_MESSAGE(part, part.error().text());
    CHECK(secrets_in(part.value()) == 1);
    CHECK(*part.value().find(pair.name) == pair);
  }
  std::ofstream((folder / "split") + "/worker-3.token") << "a join token, which is no key file";
  const auto whole = KeyRing::load(folder / "split");
  REQUIRE_MESSAGE(whole, whole.error().text());
  CHECK(whole.value().allow_list() == ring.allow_list());
  CHECK(whole.value().numbered("coordinator") == ring.numbered("coordinator"));
  CHECK(whole.value().numbered("worker") == ring.numbered("worker"));
  const auto again = ring.split(folder / "split");
  REQUIRE(!again);
  CHECK(again.error().text().find("exists already") != std::string::npos);
}

// Goal: any part of a job's keys names all coordinators that there may be, and how many of them begin; without spares nothing is as it was not. Method: every way in which keys travel.
TEST_CASE("keys: spares are with the coordinators everywhere, and are told apart from them") {
  const KeyFolder folder;
  const KeyRing ring = KeyRing::generate(3, 2, 9);
  CHECK(ring.numbered("coordinator").size() == 12);
  CHECK(ring.founders() == 3);
  CHECK(ring.format().find("starling-keys 2\nfounders 3\ncoordinator-0 ") == 0);
  REQUIRE(ring.split(folder / "split"));
  const auto whole = KeyRing::load(folder / "split");
  REQUIRE_MESSAGE(whole, whole.error().text());
  REQUIRE(ring.save(folder / "keys"));
  for (const KeyRing& read :
       {whole.value(), KeyRing::load(folder / "keys").value(), ring.part_for("worker-1").value(),
        ring.part_for("coordinator-11").value(), KeyRing::parse(ring.format()).value(),
        KeyRing::load_for(folder / "split", "worker-0").value(), ring.public_part()}) {
    CHECK(read.founders() == 3);
    const auto places = read.numbered("coordinator");
    REQUIRE(places.size() == 12);
    for (std::size_t i = 0; i < places.size(); ++i)
      CHECK(places[i].public_key == ring.numbered("coordinator")[i].public_key);
  }
  CHECK(ring.part_for("client").value().founders() == 3);

  const KeyRing without = KeyRing::generate(3, 2);
  CHECK(without.founders() == 3);
  CHECK(without.format().find("founders") == std::string::npos);
  auto changed = without.part_for("worker-0");
  CHECK(changed.value().remove("worker-0"));
  CHECK(changed.value().founders() == 3);
}

TEST_CASE("keys: a folder whose files have other founders is refused") {
  const KeyFolder folder;
  const KeyRing ring = KeyRing::generate(1, 1, 2);
  REQUIRE(ring.split(folder / "split"));
  const std::string file = (folder / "split") + "/worker-0";
  std::string text = ring.part_for("worker-0").value().format();
  text.replace(text.find("founders 1"), 10, "founders 2");
  std::filesystem::remove(file);
  REQUIRE(KeyRing::parse(text).value().save(file));
  const auto mixed = KeyRing::load(folder / "split");
  REQUIRE(!mixed);
  CHECK(mixed.error().text().find("other founders") != std::string::npos);
}

TEST_CASE("keys: files of two jobs in one folder are not taken for one") {
  const KeyFolder folder;
  REQUIRE(KeyRing::generate(1, 1).split(folder / "split"));
  const auto other = KeyRing::generate(1, 2).part_for("worker-1");
  REQUIRE(other.value().save((folder / "split") + "/worker-1"));
  const auto mixed = KeyRing::load(folder / "split");
  REQUIRE(!mixed);
  CHECK(mixed.error().text().find("coordinator-0 is there twice") != std::string::npos);
}

TEST_CASE("keys: a list is changed in place, for its owner only") {
  const KeyFolder folder;
  KeyRing ring = KeyRing::generate(1, 2);
  REQUIRE(ring.save(folder / "keys"));
  CHECK(ring.remove("worker-1"));
  CHECK(!ring.remove("worker-1"));
  REQUIRE(ring.replace(folder / "keys"));
  CHECK(mode_of(folder / "keys") == 0600);
  const auto loaded = KeyRing::load(folder / "keys");
  REQUIRE(loaded);
  CHECK(loaded.value().pairs() == ring.pairs());
  CHECK(!ring.replace(folder / "nothing"));
}

TEST_CASE("keys: what a key lets its owner say is in its name") {
  CHECK(role_of("worker-0") == Role::kWorker);
  CHECK(role_of("worker-4095") == Role::kWorker);
  CHECK(role_of("coordinator-2") == Role::kCoordinator);
  CHECK(role_of("admin") == Role::kAdmin);
  CHECK(role_of("admin-ann") == Role::kAdmin);
  for (const char* other : {"client", "worker-", "worker", "worker-1x", "coordinator-", "xworker-1",
                            "admin-", "admins", "xadmin"})
    CHECK(role_of(other) == Role::kObserver);
}

TEST_CASE("keys: no file is replaced, and an exposed one is refused") {
  const KeyFolder folder;
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
  CHECK(!KeyRing::load(folder / "."));  // a folder without key files
}

// Goal: who copies a key file in place revokes nobody meanwhile. Method: every beginning of a file,
// those that end with a line among them.
TEST_CASE("keys: a file is whole or not taken") {
  const std::string text = KeyRing::generate(3, 12, 2).public_part().format();
  REQUIRE(KeyRing::parse(text));
  for (std::size_t n = 0; n + 1 < text.size(); ++n) {
    CAPTURE(n);
    CHECK_FALSE(KeyRing::parse(text.substr(0, n)));
  }
  const auto cut = KeyRing::parse(text.substr(0, text.find("worker-3 ")));
  REQUIRE_FALSE(cut);
  CHECK(cut.error().text().find("it is not whole") != std::string::npos);
  CHECK_FALSE(KeyRing::parse(text + text.substr(text.find('\n') + 1)));
  std::string without = text;
  without.erase(text.find("worker-3 "), text.find("worker-4 ") - text.find("worker-3 "));
  CHECK_FALSE(KeyRing::parse(without));
}

TEST_CASE("keys: a wrong file is named with its line, and no secret is printed") {
  const KeyRing ring = KeyRing::generate(1, 1);
  const KeyPair& a = ring.pairs()[0];
  const KeyPair& b = ring.pairs()[1];
  const std::string head = "starling-keys 2\n";
  struct Case {
    const char* name;
    std::string text;
    const char* says;
  };
  const Case cases[] = {
      {"empty", "", "line 1"},
      {"another version", "starling-keys 1\n", "line 1"},
      {"no key", head + "worker-0\n", "line 2"},
      {"too many words", head + "w " + a.public_key + " " + a.secret_key + " x\n", "line 2"},
      {"bad name", head + "Worker_0 " + a.public_key + "\n", "name"},
      {"short key", head + "\n# remark\nworker-0 abcde\n", "line 4"},
      {"secret of another", head + "w " + a.public_key + " " + b.secret_key + "\n", "belong"},
      {"name twice", head + "w " + a.public_key + "\nw " + b.public_key + "\n", "twice"},
      {"no founders", head + "founders 0\nw " + a.public_key + "\nend 1\n", "line 2"},
      {"founders?", head + "founders 1 x\nw " + a.public_key + "\nend 1\n", "line 2"},
      {"founders twice", head + "founders 1\nfounders 1\nend 0\n", "line 3"},
      {"founders late", head + "w " + a.public_key + "\nfounders 1\nend 1\n", "line 3"},
      {"founders have no keys", head + "founders 2\n" + a.name + " " + a.public_key + "\nend 1\n",
       "2 founders"},
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

TEST_CASE(
    "the name of an enrolled key is a worker's, follows from the key, and is none of a ring's") {
  const KeyPair pair = make_key_pair("x");
  const std::string name = enrolled_name(pair.public_key);
  CHECK(name == enrolled_name(pair.public_key));
  CHECK(name.size() == std::string("worker-").size() + 12);
  CHECK(role_of(name) == Role::kWorker);
  CHECK(name[7] != '0');
  CHECK(enrolled_name(make_key_pair("x").public_key) != name);
  CHECK(enrolled_name(std::string(40, '0')) == enrolled_name(std::string(40, '0')));
  KeyRing ring;
  CHECK(ring.add({name, pair.public_key, pair.secret_key}));
}

}  // namespace
}  // namespace starling
