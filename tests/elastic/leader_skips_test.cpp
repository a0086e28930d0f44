// Steps with a micro-batch that is not finite change nothing: people are told, and the job ends if
// it says so.

#include "elastic/membership/skips.h"
#include "tests/elastic/one_leader.h"

namespace starling::elastic {
namespace {

struct Telling : OneLeader {
  void take(const LeaderCommand& command) override {
    if (const auto* event = std::get_if<Event>(&command))
      if (const auto* e = std::get_if<event::Warning>(event)) warnings.push_back(e->text);
  }
  void step(Version version, bool skipped) {
    Progress progress{group.plan()->id, {}, 3, {}, 1};
    progress.record.version = version;
    progress.record.skipped = skipped;
    for (const std::uint64_t member : {1, 2, 3}) say(member, progress);
  }
  std::vector<std::string> warnings;
};

TEST_CASE("leader: the first skipped step is told, and the tenth and the hundredth in a row") {
  Telling rig;
  rig.begin(1);
  for (Version v = 1; v < 5; ++v) rig.step(v, v == 3);
  REQUIRE(rig.warnings.size() == 1);
  CHECK(rig.warnings[0].find("step 3 is skipped") == 0);
  for (Version v = 5; v < 5 + 100; ++v) rig.step(v, true);
  REQUIRE(rig.warnings.size() == 4);
  CHECK(rig.warnings[1].find("step 5 is skipped") == 0);
  CHECK(rig.warnings[2].find("as the 9 before it; the training has diverged") != std::string::npos);
  CHECK(rig.warnings[3].find("as the 99 before it") != std::string::npos);
  CHECK(rig.proposals.empty());
}

TEST_CASE("leader: with on_nonfinite = \"stop\" a skipped step is the end, exit code 1") {
  Telling rig;
  rig.begin(1);
  LeaderConfig config;
  config.micro_batches = 6;
  config.steps = 100;
  config.segments = kSegments;
  config.stop_on_nonfinite = true;
  rig.lead(config, 2);
  rig.step(1, false);
  CHECK(rig.first_proposed<JobEnded>() == nullptr);
  rig.step(2, true);
  const auto* end = rig.first_proposed<JobEnded>();
  REQUIRE(end != nullptr);
  CHECK(end->exit_code == 1);
  CHECK(end->reason.find("step 2 is skipped") == 0);
  CHECK(std::count_if(rig.proposals.begin(), rig.proposals.end(), [](const Entry& entry) {
          return std::holds_alternative<JobEnded>(entry);
        }) == 1);
}

// Goal: the end does not depend on what this leader has heard before.
TEST_CASE("leader: a skipped step that is told after a later one is the end too") {
  Telling rig;
  rig.begin(1);
  LeaderConfig config;
  config.micro_batches = 6;
  config.steps = 100;
  config.segments = kSegments;
  config.stop_on_nonfinite = true;
  rig.lead(config, 2);
  rig.step(3, false);
  CHECK(rig.first_proposed<JobEnded>() == nullptr);
  rig.step(2, true);
  const auto* end = rig.first_proposed<JobEnded>();
  REQUIRE(end != nullptr);
  CHECK(end->reason.find("step 2 is skipped") == 0);
}

}  // namespace
}  // namespace starling::elastic
