#include "tools/chaos/command_line.h"

#include <doctest/doctest.h>

namespace starling::chaos {

TEST_CASE("a command's words are quoted where a shell would change them") {
  CommandLine line({"starling", "chaos", "a b/job.toml"});
  line.add({"--out", "it's"}).add({""});
  CHECK(line.text() == "starling chaos 'a b/job.toml' --out 'it'\\''s' ''");
  CHECK(CommandLine({"$HOME", "*", "x;y"}).text() == "'$HOME' '*' 'x;y'");
  CHECK(CommandLine({"runs/x-1_2.toml", "--kinds", "kill,stop"}).text() ==
        "runs/x-1_2.toml --kinds kill,stop");
}

}  // namespace starling::chaos
