#include "core/observe/skips.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace starling {
namespace {

event::StepPassed skipped_step(Version version, bool skipped) {
  event::StepPassed step;
  step.record.version = version;
  step.record.skipped = skipped;
  return step;
}

// Goal: leaders tell a skipped step once at most, and count the later steps of its row on.
// Method: a table of rows of steps, each with the begins of the warnings that follow.
TEST_CASE("skips: the first skipped step, and the tenth and hundredth in a row, are told once") {
  struct Case {
    const char* name;
    std::vector<event::StepPassed> steps;
    std::vector<std::string> warnings;
  };
  const auto row = [](Version from, Version to) {
    std::vector<event::StepPassed> steps;
    for (Version v = from; v < to; ++v) steps.push_back(skipped_step(v, true));
    return steps;
  };
  const Case cases[] = {
      {"none", {skipped_step(0, false), skipped_step(1, false)}, {}},
      {"one",
       {skipped_step(3, false), skipped_step(4, true), skipped_step(5, false)},
       {"step 4 is"}},
      {"two apart",
       {skipped_step(3, true), skipped_step(4, false), skipped_step(5, true)},
       {"step 3 is", "step 5 is"}},
      {"every member tells it", {skipped_step(4, true), skipped_step(4, true)}, {"step 4 is"}},
      {"an older one comes late", {skipped_step(4, true), skipped_step(3, true)}, {"step 4 is"}},
      {"between two leaders a step is not told",
       {skipped_step(4, true), skipped_step(6, true), skipped_step(7, true)},
       {"step 4 is"}},
      {"a hundred", row(5, 105), {"step 5 is", "step 14 is", "step 104 is"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Skips skips((Job()));
    std::vector<std::string> told;
    for (const event::StepPassed& step : c.steps)
      if (const auto warning = skips.take(step)) told.push_back(warning->text);
    REQUIRE(told.size() == c.warnings.size());
    for (std::size_t i = 0; i < told.size(); ++i) {
      CAPTURE(told[i]);
      CHECK(told[i].find(c.warnings[i]) == 0);
      CHECK((told[i].find("diverged") != std::string::npos) == (c.steps.size() == 100 && i > 0));
    }
  }
}

TEST_CASE("skips: with on_nonfinite = \"stop\" the end says it") {
  Job job;
  job.on_nonfinite = NonFinite::kStop;
  Skips skips(job);
  CHECK_FALSE(skips.take(skipped_step(0, true)));
}

}  // namespace
}  // namespace starling
