#include "elastic/membership/fingerprint.h"

#include <doctest/doctest.h>

namespace starling::elastic {
namespace {

// Goal: a worker that is refused hears what differs first, and what it means; nothing that is equal.
TEST_CASE("fingerprints: the parts that differ are named, and the first says what it means") {
  const std::string group =
      "isa python 3.11.7, torch 2.15.0, AVX2, script 1f2e, data 3a, weights 4b, first gradient 5c, "
      "probe of steps 6d, starling 0.1.0, gcc 12.2.0, glibc 2.36";
  struct Row {
    const char *from, *to, *text;
  };
  const Row rows[] = {
      {"5c", "81",
       "first gradient 81 here, 5c there: another script or other data, or a processor or library "
       "that computes otherwise"},
      {"data 3a", "data 9f",
       "data 9f here, 3a there: other data or held-out data, or other values of what a script does "
       "not train"},
      {"AVX2", "AVX512",
       "isa python 3.11.7, torch 2.15.0, AVX512 here, python 3.11.7, torch 2.15.0, AVX2 there: "
       "another instruction set, or another version of what computes"},
      {"glibc 2.36", "glibc 2.39",
       "starling 0.1.0, gcc 12.2.0, glibc 2.39 here, 0.1.0, gcc 12.2.0, glibc 2.36 there: another "
       "build of this program"},
      {"data 3a, weights 4b", "data 9f, weights 7",
       "data 9f here, 3a there; weights 7 here, 4b there: other data or held-out data, or "
       "other values of what a script does not train"},
      {"data 3a", "data 9f, held-out data 1",
       "data 9f here, 3a there; held-out data 1 here, none there: other data or held-out data, or "
       "other values of what a script does not train"},
      {"script 1f2e, ", "",
       "script none here, 1f2e there: another text of the script, or other modules beside it, or "
       "other "
       "texts of them"},
  };
  for (const Row& row : rows) {
    std::string here = group;
    here.replace(here.find(row.from), std::string(row.from).size(), row.to);
    CHECK(fingerprint_differences(here, group) == row.text);
  }
  CHECK(fingerprint_differences(group, group) ==
        "the loss of the first micro-batch; all else is equal, " + group);
  CHECK(fingerprint_differences("", "data 1") ==
        "data none here, 1 there: other data or held-out data, or other values of what a script "
        "does not train");
}

TEST_CASE("fingerprints: held-out data are told apart from the data that are trained on") {
  const std::string group = "data 3a, held-out data 00, weights 4b";
  CHECK(fingerprint_differences("data 9f, held-out data 00, weights 4b", group) ==
        "data 9f here, 3a there: other data or held-out data, or other values of what a script "
        "does not train");
  CHECK(fingerprint_differences("data 3a, held-out data 1f, weights 4b", group) ==
        "held-out data 1f here, 00 there: other held-out data");
}

TEST_CASE("fingerprints: the script's own text is told from those of the modules beside it") {
  struct Row {
    const char *here, *there, *meaning;
  };
  const Row rows[] = {
      {"1a/2b", "1c/2b", ": another text of the script itself"},
      {"1a/2b", "1a/2c", ": other modules beside the script, or other texts of them"},
      {"1a/2b", "1c/2c", ": another text of the script itself, and of modules beside it"},
      {"1a/2b", "1a",
       ": another text of the script, or other modules beside it, or other texts of them"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.here);
    const std::string here = std::string("isa AVX2, script ") + row.here + ", first gradient 5c";
    const std::string there = std::string("isa AVX2, script ") + row.there + ", first gradient 5d";
    CHECK(fingerprint_differences(here, there).ends_with(row.meaning));
    CHECK(other_script(here, there));
    CHECK(other_modules_alone(here, there) == (row.there == std::string("1a/2c")));
    CHECK_FALSE(other_script(here, here));
    CHECK_FALSE(other_script(here, "isa AVX2"));
  }
}

TEST_CASE("fingerprints: another script alone, whatever the build is called") {
  const std::string before =
      "isa torch 2.15.0, AVX2, script 1f, data 3a, weights 4b, first gradient 5c, probe of steps "
      "6d, starling 0.1.0, gcc 12.2.0";
  struct Row {
    const char *from, *to;
    bool alone;
  };
  const Row rows[] = {{"script 1f", "script 2f", true},
                      {"1f, data 3a", "2f, data 3b", false},
                      {"1f, data 3a, weights 4b", "2f, data 3a, weights 4c", false},
                      {"weights 4b, first gradient 5c", "weights 4b, first gradient 5d", false},
                      {"steps 6d", "steps 6e", false},
                      {"1f, data 3a", "2f, data 3a, held-out data 1", false},
                      {"script 1f, ", "", false},
                      {"script 1f, data 3a, ", "script 2f, ", false},
                      {"gcc 12.2.0", "gcc 13", false},
                      {"AVX2, script 1f", "AVX512, script 2f", true}};
  for (const Row& row : rows) {
    CAPTURE(row.to);
    std::string here = before;
    here.replace(here.find(row.from), std::string(row.from).size(), row.to);
    CHECK(other_script_alone(here, before) == row.alone);
    CHECK(other_script_alone(before, here) == row.alone);
  }
  CHECK_FALSE(other_script_alone(before, before));
  CHECK_FALSE(other_script_alone("", ""));
  CHECK_FALSE(other_script_alone("script 1", "script 2"));
}

}  // namespace
}  // namespace starling::elastic
