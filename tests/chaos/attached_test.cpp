#include "tools/chaos/attached.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/judge/stories.h"

namespace starling::chaos {
namespace {

namespace fs = std::filesystem;

// A folder with the events of a run and its key file.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("starling-attached-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  void tell(const judge::Tale& tale) const {
    std::ofstream file(path / "events.jsonl");
    for (const auto& line : tale.lines) file << line << "\n";
  }
  std::string found() const {
    Attached attached({.run = path.string(), .keys = (path / "keys").string()},
                      [](const std::string&) {});
    auto result = attached.find();
    return result ? "found" : result.error().text();
  }
};

}  // namespace

TEST_CASE("a run that is not there, has ended, or has nobody here, is refused") {
  const Folder folder;
  CHECK(folder.found().find("no run") != std::string::npos);
  folder.tell(judge::beginning().steps(0, 5).done());
  CHECK(folder.found().find("has ended") != std::string::npos);
  folder.tell(judge::beginning().steps(0, 3));
  CHECK(folder.found().find("keys") != std::string::npos);
  REQUIRE(KeyRing::generate(1, 3).save((folder.path / "keys").string()));
  // Its process ids are of no worker, or of one of another job.
  CHECK(folder.found().find("no worker of the run is on this machine") != std::string::npos);
}

TEST_CASE("a run that nobody here has joined is not found by its address") {
  CHECK(run_joined_at("tcp://127.0.0.1:9").error().text() ==
        "no worker that joins tcp://127.0.0.1:9 is on this machine");
}

TEST_CASE("a story that goes on ends with its last whole step") {
  const judge::Story whole = judge::beginning().steps(0, 3).story();
  judge::Story loose =
      judge::beginning().steps(0, 3).step(1.3, 3).story();  // its ledger is still to come
  CHECK(without_loose_end(loose).step_lines.size() == whole.step_lines.size());
  loose = judge::beginning().steps(0, 3).ledger(1.3, 3).story();
  CHECK(without_loose_end(loose).ledger_lines.size() == whole.ledger_lines.size());
  CHECK(without_loose_end(whole).step_lines.size() == 3);
  // Of one that is over nothing is taken away.
  const judge::Story over = judge::beginning().steps(0, 3).step(1.3, 3).done().story();
  CHECK(without_loose_end(over).step_lines.size() == 4);
}

}  // namespace starling::chaos
