// Steps with a micro-batch that is not finite change nothing, and the job ends if it says so.

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

// Goal: a leader, which does not know what the one before it was told, leaves that to the observers.
TEST_CASE("leader: a skipped step is no warning of its own") {
  Telling rig;
  rig.begin(1);
  for (Version v = 1; v < 120; ++v) rig.step(v, true);
  CHECK(rig.warnings.empty());
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
