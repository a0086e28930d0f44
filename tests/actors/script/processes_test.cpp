// Processes that compute are forks of one that has done the script's imports, where they may be.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/actors/script/python_rig.h"

namespace starling::actors::script {
namespace {

// Of this process, those that compute, or those that only import and are forked.
std::vector<pid_t> children(bool warm) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::string name, rest;
    std::getline(std::ifstream(entry.path() / "comm") >> std::ws, name);
    std::getline(std::ifstream(entry.path() / "stat"), rest, '\0');
    const auto after = rest.rfind(") ");
    if (after == std::string::npos || rest[after + 2] == 'Z') continue;
    if (std::stoi(rest.substr(after + 4)) == ::getpid() && (name == "starling-warm") == warm)
      found.push_back(static_cast<pid_t>(std::stoi(entry.path().filename())));
  }
  return found;
}

TEST_CASE("processes are forks of one that has done the imports, and do without it") {
  const Script script("import json");
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  REQUIRE(children(/*warm=*/true).size() == 1);
  std::optional<ScopedVariable> no_program(std::in_place, "STARLING_PYTHON", "/nowhere/python");
  const auto lose = [&] {
    REQUIRE(children(/*warm=*/false).size() == 1);
    REQUIRE(::kill(children(/*warm=*/false).front(), SIGKILL) == 0);
  };
  lose();
  REQUIRE(rig.pass(0));
  REQUIRE(rig.lost == std::vector<std::string>{"the script's process was ended by SIGKILL"});
  REQUIRE(::kill(children(/*warm=*/true).front(), SIGKILL) == 0);
  lose();
  CHECK(!rig.pass(1));
  no_program.reset();
  REQUIRE(rig.pass(1));
  lose();
  REQUIRE(rig.pass(2));
}

TEST_CASE("nothing is forked where an import has started a thread, or has failed") {
  for (const char* text : {"import threading, time\nthreading.Thread(target=time.sleep, "
                           "args=(60,), daemon=True).start()",
                           "raise ValueError", "import os\nos._exit(3)"}) {
    CAPTURE(text);
    const Script script("import of_a_package");
    script.install(text);
    Rig rig(spec_of(script));
    REQUIRE(rig.initialise());
    CHECK(children(/*warm=*/true).empty());
    CHECK(children(/*warm=*/false).size() == 1);
    REQUIRE(rig.pass());
    CHECK(rig.lost.empty());
  }
}

TEST_CASE("where an import does not bear the fork, processes are started by themselves") {
  const Script script("import of_a_package");
  script.install(
      "import os\nforks = []\n"
      "def break_it():\n  forks.append(1)\n  len(forks) == 2 and os.kill(os.getpid(), 9)\n"
      "os.register_at_fork(after_in_child=break_it)");  // the second fork of two is what computes
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  REQUIRE(rig.pass());
  CHECK(rig.lost == std::vector<std::string>{"the script's process was ended by SIGKILL"});
}

TEST_CASE("no pass waits for a stopped process of the imports") {
  const Script script;
  PythonSpec spec = spec_of(script);
  spec.patience_s = 100000;
  Rig rig(spec);
  REQUIRE(rig.initialise());
  REQUIRE(::kill(children(/*warm=*/true).at(0), SIGSTOP) == 0);
  REQUIRE(::kill(children(/*warm=*/false).at(0), SIGKILL) == 0);
  REQUIRE(rig.pass());
  CHECK(children(/*warm=*/true).empty());
  CHECK(children(/*warm=*/false).size() == 1);
}

TEST_CASE("processes and forks of theirs are gone with their model") {
  {
    const Script script;
    script.say("hangs-once " + script.beside("hung"));
    Rig rig(spec_of(script));
    REQUIRE(rig.initialise());
  }
  CHECK(children(true).empty());
  CHECK(children(false).empty());
}

}  // namespace
}  // namespace starling::actors::script
