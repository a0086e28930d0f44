// The life of a coordinator's log, which a place is given to.

#include "actors/coordinator/place_claim.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace starling::actors {
namespace {

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "starling-claim-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& text) const { std::ofstream(path + "/life") << text; }
  std::string path;
};

}  // namespace

TEST_CASE("place claim: the same folder asks with the same life, another one with another") {
  const Folder folder, other;
  const auto first = PlaceClaim::open(folder.path, 3, /*log_lost=*/true);
  REQUIRE(first);
  const auto again = PlaceClaim::open(folder.path, 3, /*log_lost=*/true);
  REQUIRE(again);
  const auto question = again.value().question("tcp://10.0.0.4:7000", 1, 7);
  CHECK(question.add == 3);
  CHECK(question.remove == 1);
  CHECK(question.life != Nonce{});
  CHECK(question.job_hash == 7);
  CHECK(question.life == first.value().question("", {}, 7).life);
  CHECK(PlaceClaim::open(other.path, 3, true).value().question("", {}, 7).life != question.life);
}

// Goal: a log that took part and is gone is not taken for one that never did.
TEST_CASE("place claim: who took part does not begin anew without its log") {
  const Folder folder;
  auto claim = PlaceClaim::open(folder.path, 3, /*log_lost=*/true);
  REQUIRE(claim);
  CHECK(!claim.value().has_begun());
  REQUIRE(claim.value().begin());
  CHECK(PlaceClaim::open(folder.path, 3, /*log_lost=*/false).value().has_begun());
  const auto lost = PlaceClaim::open(folder.path, 3, /*log_lost=*/true);
  REQUIRE(!lost);
  CHECK(lost.error().code() == Code::kBadInput);
  CHECK(lost.error().text().find("nobody can say what it has promised") != std::string::npos);
}

// Goal: a crash between the log and the file counts as taking part.
TEST_CASE("place claim: a log that is there has begun") {
  const Folder folder;
  REQUIRE(PlaceClaim::open(folder.path, 3, /*log_lost=*/true));
  CHECK(PlaceClaim::open(folder.path, 3, /*log_lost=*/false).value().has_begun());
  CHECK(!PlaceClaim::open(folder.path, 3, /*log_lost=*/true));
}

TEST_CASE("place claim: a damaged life is refused") {
  for (const char* text : {"", "begun", "0 asked\n", "12 maybe\n", "-1x asked\n"}) {
    const Folder folder;
    folder.write(text);
    CHECK(!PlaceClaim::open(folder.path, 3, /*log_lost=*/true));
  }
  const Folder folder;
  CHECK(!PlaceClaim::open(folder.path, 3, /*log_lost=*/false));  // whose log is it?
}

}  // namespace starling::actors
