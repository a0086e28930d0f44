// Checkpoints that are being written, by themselves: a job of 100 steps with three segments, a
// checkpoint every 10 steps, digests in the votes of every 20.

#include "elastic/membership/drafts.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace starling::elastic {
namespace {

using namespace draft_command;

constexpr std::uint32_t kDraftSegments = 3;
constexpr Digest kDraftData{8, 9};

LeaderConfig writing_config() {
  LeaderConfig config;
  config.steps = 100;
  config.segments = kDraftSegments;
  config.checkpoint.every = 10;
  config.elastic.digest_every = 20;
  return config;
}

// Drafts, and the group whose log says which checkpoints are complete.
struct Writing {
  // `from`: a checkpoint in doubt that the run goes on from; 0: it begins anew.
  explicit Writing(Version from = 0) {
    JobStarted started;
    if (from != 0) {
      started.checkpoints = {{from, {}, {7, 7}, "", kDraftData}};
      started.checkpoints.back().doubted_from = 5;
    }
    group.apply(started);
    standard.fingerprint = {7, 7};
  }

  // Of these segments, each with digest 1.
  static ShardWritten part(Version version, std::vector<SegmentId> segments) {
    ShardWritten written{version, {}, {"shard", 10, {}}, {}};
    written.record.version = version - 1;
    for (const SegmentId s : segments) written.shard.segments.push_back({s, {1, 0}});
    return written;
  }
  static ShardWritten failed(Version version) { return {version, {}, {}, "the disk is full"}; }
  static StepRecord record(Version version, Digest digest) {
    StepRecord r;
    r.version = version;
    r.digest = digest;
    return r;
  }

  void keep(DraftCommands commands) {
    for (DraftCommand& command : commands) {
      if (auto* store = std::get_if<Store>(&command)) stores.push_back(store->checkpoint.version);
      if (auto* tidy = std::get_if<Tidy>(&command)) {
        tidied.push_back(tidy->below);
        kept = tidy->kept;
        above = tidy->above;
      }
      if (auto* propose = std::get_if<Propose>(&command)) proposed.push_back(propose->published);
      if (auto* warning = std::get_if<Warn>(&command)) warnings.push_back(warning->text);
    }
    drafts.check_invariants();
  }
  void take(const ShardWritten& written) {
    keep(drafts.take("w", written, {&standard, kDraftData, doubted_from}));
  }
  void all_parts(Version version) { take(part(version, {0, 1, 2})); }
  void vote(Version version, Digest digest) {
    keep(drafts.passed(record(version, digest), {&standard, kDraftData, doubted_from}));
  }
  void publish(Version version) {
    all_parts(version);
    if (version % 20 == 0) vote(version, {kDraftSegments, 0});
    keep(drafts.stored(version, ""));
    REQUIRE(!proposed.empty());
    REQUIRE(proposed.back().checkpoint.version == version);
    group.apply(proposed.back());
    keep(drafts.published(version));
  }

  const LeaderConfig config = writing_config();
  Group group;
  Join standard;
  Drafts drafts{config, group};
  Version doubted_from = kNoVersion, above = kNoVersion;
  std::vector<Version> stores, tidied, kept;
  std::vector<Published> proposed;
  std::vector<std::string> warnings;
};

TEST_CASE("drafts: one is stored once, when every segment is there") {
  Writing w;
  w.take(w.part(10, {0, 2}));
  w.take(w.part(10, {0}));  // said again
  CHECK(w.stores.empty());
  w.take(w.part(10, {1}));
  CHECK(w.stores == std::vector<Version>{10});
  w.all_parts(10);
  CHECK(w.stores.size() == 1);
  w.keep(w.drafts.stored(10, ""));
  REQUIRE(w.proposed.size() == 1);
  CHECK(w.proposed[0].checkpoint == Checkpoint{10, {kDraftSegments, 0}, {7, 7}, "", kDraftData});
}

// The run may turn out to be another job's since its start; keep = 2.
TEST_CASE("drafts: the newest checkpoint that is not in doubt stays until one after it is not") {
  Writing w;
  w.publish(10);
  w.doubted_from = 10;
  for (const Version version : std::vector<Version>{20, 30, 40}) w.publish(version);
  CHECK(w.kept == std::vector<Version>{10, 30, 40});
  CHECK(w.group.checkpoints().back().doubted_from == Version{10});
  w.doubted_from = kNoVersion;
  w.publish(50);
  CHECK(w.kept == std::vector<Version>{40, 50});
}

// Data may be found to be others than those of the start, to which the run then goes back.
TEST_CASE("drafts: where all are in doubt the one that the run began with stays") {
  Writing w(40);
  w.doubted_from = 10;
  for (const Version version : std::vector<Version>{50, 60, 70}) w.publish(version);
  CHECK(w.kept == std::vector<Version>{40, 60, 70});
}

// A checkpoint that is written late is whole all the same, and a reader takes no doubt above it.
TEST_CASE("drafts: a doubt of later steps is none of a checkpoint that is written late") {
  Writing w;
  w.publish(10);
  w.doubted_from = 25;
  w.publish(20);
  CHECK(w.group.checkpoints().back().doubted_from == kNoVersion);
  w.publish(30);
  CHECK(w.group.checkpoints().back().doubted_from == Version{25});
}

TEST_CASE("drafts: checkpoints that are withdrawn are removed, with what is being written") {
  Writing w;
  w.publish(10);
  w.doubted_from = 10;
  w.publish(20);
  w.take(w.part(30, {0}));
  w.keep(w.drafts.withdraw_above(10));
  CHECK(w.above == Version{10});
  w.take(w.part(30, {1, 2}));
  CHECK(w.stores == std::vector<Version>{10, 20});
}

TEST_CASE("drafts: nobody wants a version that is not due, or that there is already") {
  Writing w;
  w.publish(20);
  w.stores.clear();
  for (const Version version : std::vector<Version>{0, 5, 10, 20, 110}) {
    CAPTURE(version);
    w.all_parts(version);
    CHECK(w.stores.empty());
  }
  w.take(w.part(30, {0, 1, 2, 3}));  // no such segment: the others count
  CHECK(w.stores == std::vector<Version>{30});
}

TEST_CASE("drafts: what is stored is what was voted for, where votes carry a digest") {
  Writing w;
  w.all_parts(20);
  CHECK(w.stores.empty());
  w.vote(20, {kDraftSegments, 0});
  CHECK(w.stores == std::vector<Version>{20});
  w.vote(40, {99, 0});
  w.all_parts(40);
  CHECK(w.stores.size() == 1);
  REQUIRE(w.warnings.size() == 1);
  CHECK(w.warnings[0].find("checkpoint of step 40 is given up: its shards have digest") == 0);
}

TEST_CASE("drafts: one that is given up is over, and is removed up to what is still written") {
  Writing w;
  w.take(w.part(10, {0}));
  w.take(w.failed(20));
  w.all_parts(20);
  w.vote(20, {kDraftSegments, 0});
  CHECK(w.stores.empty());
  CHECK(w.warnings ==
        std::vector<std::string>{"checkpoint of step 20 is given up: w: the disk is full"});
  CHECK(w.tidied == std::vector<Version>{10});  // whose parts still come in
}

// A member that is too slow says that it skips a version, while it and all others write the one
// before: of that, nobody has said anything yet.
TEST_CASE("drafts: a version that was skipped takes no folder from who writes") {
  Writing w;
  w.publish(10);
  w.tidied.clear();
  w.take(w.failed(30));
  CHECK(w.tidied.empty());
  w.all_parts(20);
  w.vote(20, {kDraftSegments, 0});
  CHECK(w.stores == std::vector<Version>{10, 20});
  w.take(w.part(40, {0}));  // begun, so nobody writes anything before it
  w.take(w.failed(50));
  CHECK(w.tidied == std::vector<Version>{20});  // which is being stored
}

TEST_CASE("drafts: a manifest that cannot be written gives up its checkpoint") {
  Writing w;
  w.keep(w.drafts.stored(10, ""));  // nobody was asked to store it
  w.all_parts(10);
  w.keep(w.drafts.stored(10, "no space left"));
  CHECK(w.proposed.empty());
  CHECK(w.warnings == std::vector<std::string>{"checkpoint of step 10 is given up: no space left"});
  w.keep(w.drafts.stored(10, ""));
  CHECK(w.proposed.empty());
}

TEST_CASE("drafts: of four the oldest goes, but not one that is being stored") {
  Writing w;
  w.all_parts(10);
  for (const Version version : std::vector<Version>{30, 50, 70}) w.take(w.part(version, {0}));
  CHECK(w.warnings == std::vector<std::string>{
                          "checkpoint of step 30 is given up: some parts of it are missing"});
  w.keep(w.drafts.stored(10, ""));
  CHECK(w.proposed.size() == 1);
  w.take(w.part(30, {1, 2}));  // begins anew, and is too few
  CHECK(w.stores == std::vector<Version>{10});
}

TEST_CASE("drafts: as many complete ones stay as are to be kept") {
  Writing w;
  for (const Version version : std::vector<Version>{10, 20, 30}) w.publish(version);
  CHECK(w.proposed.back().oldest == 20);
  CHECK(w.tidied == std::vector<Version>{10, 20, 30});
}

TEST_CASE("drafts: without anybody whose bits are the group's nothing is stored") {
  Writing w;
  w.keep(w.drafts.take("w", w.part(10, {0, 1, 2}), {nullptr, {}}));
  CHECK(w.stores.empty());
  w.take(w.part(10, {}));
  CHECK(w.stores == std::vector<Version>{10});
}

TEST_CASE("drafts: a last one is wanted until there is one above the newest") {
  Writing w;
  w.publish(10);
  CHECK(w.drafts.ask());
  CHECK_FALSE(w.drafts.ask());
  CHECK(w.drafts.asked_above() == Version{10});
  w.take(w.part(13, {0}));
  w.drafts.epoch_begins();  // parts of 13 may be lost
  CHECK(w.drafts.asked_above() == Version{13});
  w.all_parts(12);
  CHECK(w.stores.size() == 1);
  w.take(w.failed(14));
  CHECK(w.drafts.asked_above() == Version{14});
  w.publish(15);
  CHECK_FALSE(w.drafts.asked_above().has_value());
}

TEST_CASE("drafts: a restart writes the versions that come anew") {
  Writing w;
  w.take(w.part(10, {0, 1}));
  w.drafts.forget();
  w.take(w.part(10, {2}));
  CHECK(w.stores.empty());
}

}  // namespace
}  // namespace starling::elastic
