#include "core/formats/checkpoint_owner.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/process_identity.h"
#include "core/formats/checkpoint.h"
#include "tests/core/checkpoint_folder.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

const std::string kJobText = "[job]\nname = \"first\"\nseed = 1\n";
const std::string kOther = "[job]\nname = \"second\"\nseed = 2\n";
const JobId kRun{1, 2, 3, 0xff};
const JobId kLater{4};

CheckpointWriter writer(std::uint64_t state_hash, const std::string& job = kJobText,
                        std::uint64_t accepts = 0) {
  return {state_hash, accepts, job, kRun};
}

CheckpointWriter leader(const JobId& run, std::uint64_t term) {
  return {7, 0, kJobText, run, term};
}

void publish(const std::string& dir, Version version, std::uint64_t state_hash) {
  Manifest m;
  m.checkpoint = {version, {1, 2}, {3, 4}, "isa reference"};
  m.record.version = version - 1;
  m.state_hash = state_hash;
  m.job = kJobText;
  m.segments = 1;
  m.segment_blocks = 4;
  m.shards = {{"shard", 3, {{0, {1, 2}}}}};
  fs::create_directories(checkpoint_folder(dir, version));
  std::ofstream(checkpoint_folder(dir, version) + "/shard") << "abc";
  const auto published = publish_checkpoint(*open_storage(dir), m);
  REQUIRE_MESSAGE(published, published.error().text());
}

TEST_CASE("owner: what was written reads back, and half of it does not") {
  const CheckpointOwner owner{{0xfeedfacecafebeef, 1}, kJobText, kRun, 12};
  const std::string text = format_checkpoint_owner(owner);
  CHECK(parse_checkpoint_owner(text).value() == owner);
  for (std::size_t n = 0; n + 1 < text.size(); ++n)
    CHECK_FALSE(parse_checkpoint_owner(text.substr(0, n)));
  CHECK_FALSE(parse_checkpoint_owner("{\"format\":\"starling-checkpoints\"}"));
  CHECK_FALSE(parse_checkpoint_owner("{\"format\":\"starling-checkpoints\",\"state_hashes\":[]}"));
  CHECK_FALSE(parse_checkpoint_owner(std::string(100000, '[')));
}

TEST_CASE("owner: a folder belongs to the job that claims it first, and says so") {
  const CheckpointFolder folder;
  CHECK_FALSE(read_checkpoint_owner(*folder.storage).value());
  CHECK(may_take_checkpoints(*folder.storage, writer(8, kOther)));
  CHECK(take_checkpoints(*folder.storage, writer(7)));
  CHECK(take_checkpoints(*folder.storage, writer(7)));  // once more
  CHECK_FALSE(may_take_checkpoints(*folder.storage, writer(8, kOther)));
  const auto refused = take_checkpoints(*folder.storage, writer(8, kOther));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::kBadInput);
  CHECK(refused.error().text().find("is of another job, \"first\"") != std::string::npos);
  CHECK(read_checkpoint_owner(*folder.storage).value()->state_hashes ==
        std::vector<std::uint64_t>{7});
  give_up_checkpoints(*folder.storage, kLater);  // of another run
  CHECK_FALSE(take_checkpoints(*folder.storage, writer(8, kOther)));
  give_up_checkpoints(*folder.storage, kRun);
  CHECK(take_checkpoints(*folder.storage, writer(8, kOther)));
}

TEST_CASE("owner: of many that claim at once one has the folder") {
  for (int round = 0; round < 20; ++round) {
    const CheckpointFolder folder;
    std::atomic<int> had = 0;
    std::vector<std::thread> threads;
    for (std::uint64_t hash = 1; hash <= 4; ++hash)
      threads.emplace_back([&, hash] {
        if (take_checkpoints(*folder.storage, writer(hash))) ++had;
      });
    for (auto& thread : threads) thread.join();
    CHECK(had == 1);
  }
}

TEST_CASE("owner: a job that goes on with another rate takes the folder with it, and back") {
  const CheckpointFolder folder;
  REQUIRE(take_checkpoints(*folder.storage, writer(7)));
  REQUIRE(take_checkpoints(*folder.storage, writer(8, kOther, /*accepts=*/7)));
  const auto owner = read_checkpoint_owner(*folder.storage).value();
  CHECK(owner->state_hashes == std::vector<std::uint64_t>{7, 8});
  CHECK(owner->job == kOther);
  CHECK(take_checkpoints(*folder.storage, writer(7)));
  CHECK(read_checkpoint_owner(*folder.storage).value()->state_hashes ==
        std::vector<std::uint64_t>{8, 7});
  CHECK_FALSE(take_checkpoints(*folder.storage, writer(9, kOther)));
}

TEST_CASE("owner: checkpoints of a build that made no such file say whose they are") {
  const CheckpointFolder folder;
  publish(folder.path, 40, 7);
  CHECK_FALSE(take_checkpoints(*folder.storage, writer(8, kOther)));
  CHECK_FALSE(fs::exists(folder.path + "/owner.json"));
  CHECK(take_checkpoints(*folder.storage, writer(8, kOther, /*accepts=*/7)));
  CHECK(read_checkpoint_owner(*folder.storage).value()->has(7));
}

TEST_CASE("owner: nothing of another job is removed or written over") {
  const CheckpointFolder folder;
  publish(folder.path, 10, 7);
  publish(folder.path, 20, 8);
  publish(folder.path, 30, 8);
  remove_checkpoints(*folder.storage, 30, {30}, {8});
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{10, 30});
  Manifest m = read_manifest(*folder.storage, 10).value();
  m.state_hash = 8;
  const auto over = publish_checkpoint(*folder.storage, m);
  REQUIRE_FALSE(over);
  CHECK(over.error().text().find("of another job") != std::string::npos);
  CHECK(read_manifest(*folder.storage, 10).value().state_hash == 7);
  remove_checkpoints(*folder.storage, 30, {30}, {7, 8});
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{30});
}

// Everything that a writer of checkpoints may do, by one that a newer one has taken the store from.
void try_all(Storage& storage, const CheckpointWriter& late) {
  CHECK(hold_checkpoints(storage, late).error().code() == Code::kStale);
  REQUIRE(withdraw_own_checkpoints(storage, late, 0));
  REQUIRE(doubt_own_checkpoints(storage, late, 0));
  remove_own_checkpoints(storage, late, 30, {30});
  CHECK(list_checkpoints(storage).value() == std::vector<Version>{10, 30});
  CHECK(read_manifest(storage, 30).value().checkpoint.doubted_from == kNoVersion);
}

TEST_CASE("owner: a run whose job's newer run has the folder writes and removes nothing there") {
  const CheckpointFolder folder;
  REQUIRE(take_checkpoints(*folder.storage, leader(kRun, 0)));
  CHECK(hold_checkpoints(*folder.storage, leader(kRun, 9)));
  REQUIRE(take_checkpoints(*folder.storage, leader(kLater, 0)));
  publish(folder.path, 10, 7);
  publish(folder.path, 30, 7);
  try_all(*folder.storage, leader(kRun, 9));
  try_all(*folder.storage, leader(kRun, 10));  // led by another coordinator
  CHECK_FALSE(still_of_run(*folder.storage, kRun));
  CHECK(still_of_run(*folder.storage, kLater));
  CHECK(hold_checkpoints(*folder.storage, leader(kLater, 1)));  // whose terms begin anew
  REQUIRE(withdraw_own_checkpoints(*folder.storage, leader(kLater, 1), 10));
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{10});
}

TEST_CASE("owner: a leader that goes on late writes and removes nothing after a newer one") {
  const CheckpointFolder folder;
  REQUIRE(take_checkpoints(*folder.storage, leader(kRun, 0)));
  publish(folder.path, 10, 7);
  publish(folder.path, 30, 7);
  CHECK(hold_checkpoints(*folder.storage, leader(kRun, 3)));
  CHECK(hold_checkpoints(*folder.storage, leader(kRun, 5)));
  try_all(*folder.storage, leader(kRun, 3));
  CHECK(still_of_run(*folder.storage, kRun));
  CHECK(hold_checkpoints(*folder.storage, leader(kRun, 5)));
}

Manifest manifest_of(const CheckpointFolder& folder, Version version) {
  publish(folder.path, version, 7);
  const Manifest manifest = read_manifest(*folder.storage, version).value();
  REQUIRE(folder.storage->remove(checkpoint_folder(version) + "/manifest.json"));
  return manifest;
}

TEST_CASE(
    "owner: a run that ends without a checkpoint gives the folder back to the one before it") {
  const CheckpointFolder folder;
  const JobId third{5};
  REQUIRE(take_checkpoints(*folder.storage,
                           writer(8, kOther)));  // in job 8, which the others go on from
  REQUIRE(take_checkpoints(*folder.storage, {7, 8, kJobText, kLater, 0}));
  CHECK(hold_checkpoints(*folder.storage, {7, 8, kJobText, kLater, 3}));
  const auto before = read_checkpoint_owner(*folder.storage).value();
  REQUIRE(publish_own_checkpoint(*folder.storage, {7, 8, kJobText, kLater, 3},
                                 manifest_of(folder, 10)));
  const auto owner = read_checkpoint_owner(*folder.storage).value();
  CHECK(before->before.size() == 1);
  CHECK(owner->before.empty());  // it has published: kRun gets nothing back

  for (int taken = 0; taken < 2; ++taken)  // once more is no other run
    REQUIRE(take_checkpoints(*folder.storage, leader(third, 0)));
  CHECK(newer_run_is_idle(*folder.storage, kLater));
  CHECK_FALSE(newer_run_is_idle(*folder.storage, third));
  CHECK_FALSE(newer_run_is_idle(*folder.storage, kRun));
  CHECK(hold_checkpoints(*folder.storage, leader(third, 1)));  // which leaves it as it is
  CHECK_FALSE(still_of_run(*folder.storage, kLater));
  give_up_checkpoints(*folder.storage, third);
  CHECK(read_checkpoint_owner(*folder.storage).value() == owner);  // hashes, job and term as well
  CHECK(still_of_run(*folder.storage, kLater));
  CHECK(hold_checkpoints(*folder.storage, {7, 8, kJobText, kLater, 3}));
}

TEST_CASE(
    "owner: of several runs without a checkpoint the last that has not ended gets the folder") {
  const CheckpointFolder folder;
  const JobId third{5}, fourth{6};
  publish(folder.path, 10, 7);
  for (const JobId& run : {kRun, kLater, third, fourth})
    REQUIRE(take_checkpoints(*folder.storage, leader(run, 0)));
  give_up_checkpoints(*folder.storage, third);
  give_up_checkpoints(*folder.storage, JobId{9});  // which never had it
  CHECK_FALSE(still_of_run(*folder.storage, kLater));
  give_up_checkpoints(*folder.storage, fourth);
  CHECK(still_of_run(*folder.storage, kLater));
  CHECK_FALSE(still_of_run(*folder.storage, kRun));
  give_up_checkpoints(*folder.storage, kLater);
  CHECK(still_of_run(*folder.storage, kRun));
  give_up_checkpoints(*folder.storage, kRun);  // a checkpoint is there, and says whose it is
  CHECK(read_checkpoint_owner(*folder.storage).value()->run == kRun);
  for (std::uint8_t i = 10; i < 60; ++i)
    REQUIRE(take_checkpoints(*folder.storage, leader(JobId{i}, 0)));
  CHECK(read_checkpoint_owner(*folder.storage).value()->before.size() == 16);
}

// Of a process that is over.
std::string identity_of_a_dead_process() {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string mine = process_identity();
    ::_exit(::write(pipe[1], mine.data(), mine.size()) > 0 ? 0 : 1);
  }
  ::close(pipe[1]);
  char text[500];
  const ssize_t size = ::read(pipe[0], text, sizeof text);
  ::close(pipe[0]);
  REQUIRE(size > 0);
  const std::string identity(text, static_cast<std::size_t>(size));
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(is_over(identity));  // a zombie
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return identity;
}

TEST_CASE("owner: of runs that were killed before a checkpoint an older one gets the folder back") {
  const CheckpointFolder folder;
  const std::string dead = identity_of_a_dead_process(), alive = process_identity();
  CHECK(is_over(dead));
  CHECK_FALSE(is_over(alive));
  CHECK(is_over(alive + "0"));       // a later process of this number
  CHECK_FALSE(is_over("x" + dead));  // on another machine
  for (const char* unknown : {"", "x", "x y z"}) CHECK_FALSE(is_over(unknown));
  publish(folder.path, 10, 7);
  const auto taken_by = [&](std::uint8_t run, const std::string& process) {
    CheckpointWriter newer = leader(JobId{run}, 0);
    newer.process = process;
    REQUIRE(take_checkpoints(*folder.storage, newer));
  };
  REQUIRE(take_checkpoints(*folder.storage, leader(kRun, 0)));
  taken_by(20, "x" + dead);
  taken_by(21, dead);
  taken_by(22, dead);
  CHECK_FALSE(still_of_run(*folder.storage, kRun));
  CHECK(read_checkpoint_owner(*folder.storage).value()->run == JobId{20});  // may live elsewhere
  give_up_checkpoints(*folder.storage, JobId{20});
  taken_by(21, alive);
  CHECK_FALSE(hold_checkpoints(*folder.storage, leader(kRun, 1)));
  give_up_checkpoints(*folder.storage, JobId{21});
  taken_by(22, dead);
  CHECK(hold_checkpoints(*folder.storage, leader(kRun, 1)));
  taken_by(22, alive);
  REQUIRE(publish_own_checkpoint(*folder.storage, leader(JobId{22}, 1), manifest_of(folder, 20)));
  CheckpointOwner killed = *read_checkpoint_owner(*folder.storage).value();
  killed.process = dead;
  std::ofstream(folder.path + "/owner.json") << format_checkpoint_owner(killed);
  CHECK_FALSE(hold_checkpoints(*folder.storage, leader(kRun, 1)));  // the job has gone on there
}

TEST_CASE("owner: half of a file, of a writer that was killed, is nobody's") {
  const CheckpointFolder folder;
  CheckpointOwner owner{{7}, kJobText, kRun, 0, "", {}};
  const std::string whole = format_checkpoint_owner(owner);
  const auto written = [&](const std::string& text) {
    std::ofstream(folder.path + "/owner.json") << text;
  };
  written(whole.substr(0, whole.size() / 2));
  CHECK(take_checkpoints(*folder.storage, writer(8, kOther)));
  written("");
  CHECK_FALSE(read_checkpoint_owner(*folder.storage).value());
  written(whole.substr(whole.size() / 2));
  CHECK_FALSE(read_checkpoint_owner(*folder.storage));
}

TEST_CASE("owner: a file without a run is taken by the run that writes next") {
  const CheckpointFolder folder;
  std::ofstream(folder.path + "/owner.json")
      << R"({"format":"starling-checkpoints","state_hashes":["0000000000000007"],"job":"x"})";
  CHECK(still_of_run(*folder.storage, kRun));
  CHECK(hold_checkpoints(*folder.storage, leader(kRun, 3)));
  CHECK(read_checkpoint_owner(*folder.storage).value()->run == kRun);
}

}  // namespace
}  // namespace starling
