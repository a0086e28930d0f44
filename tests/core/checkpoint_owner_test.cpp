#include "core/formats/checkpoint_owner.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/formats/checkpoint.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "starling-owner-XXXXXX").string();
    path = ::mkdtemp(name.data());
    storage = open_storage(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string path;
  std::unique_ptr<Storage> storage;
};

const std::string kJob = "[job]\nname = \"first\"\nseed = 1\n";
const std::string kOther = "[job]\nname = \"second\"\nseed = 2\n";

void publish(const std::string& dir, Version version, std::uint64_t state_hash) {
  Manifest m;
  m.checkpoint = {version, {1, 2}, {3, 4}, "isa reference"};
  m.record.version = version - 1;
  m.state_hash = state_hash;
  m.job = kJob;
  m.segments = 1;
  m.segment_blocks = 4;
  m.shards = {{"shard", 3, {{0, {1, 2}}}}};
  fs::create_directories(checkpoint_folder(dir, version));
  std::ofstream(checkpoint_folder(dir, version) + "/shard") << "abc";
  const auto published = publish_checkpoint(*open_storage(dir), m);
  REQUIRE_MESSAGE(published, published.error().text());
}

TEST_CASE("owner: what was written reads back, and half of it does not") {
  const CheckpointOwner owner{{0xfeedfacecafebeef, 1}, kJob};
  const std::string text = format_checkpoint_owner(owner);
  CHECK(parse_checkpoint_owner(text).value() == owner);
  for (std::size_t n = 0; n + 1 < text.size(); ++n)
    CHECK_FALSE(parse_checkpoint_owner(text.substr(0, n)));
  CHECK_FALSE(parse_checkpoint_owner("{\"format\":\"starling-checkpoints\"}"));
  CHECK_FALSE(parse_checkpoint_owner("{\"format\":\"starling-checkpoints\",\"state_hashes\":[]}"));
  CHECK_FALSE(parse_checkpoint_owner(std::string(100000, '[')));
}

TEST_CASE("owner: a folder belongs to the job that claims it first, and says so") {
  const Folder folder;
  CHECK_FALSE(read_checkpoint_owner(*folder.storage).value());
  CHECK(claim_checkpoints(*folder.storage, 7, 0, kJob).value());
  CHECK_FALSE(claim_checkpoints(*folder.storage, 7, 0, kJob).value());  // once more
  const auto refused = claim_checkpoints(*folder.storage, 8, 0, kOther);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::kBadInput);
  CHECK(refused.error().text().find("is of another job, \"first\"") != std::string::npos);
  CHECK(read_checkpoint_owner(*folder.storage).value()->state_hashes ==
        std::vector<std::uint64_t>{7});
  give_up_checkpoints(*folder.storage);
  CHECK(claim_checkpoints(*folder.storage, 8, 0, kOther).value());
}

TEST_CASE("owner: of many that claim at once one has the folder") {
  for (int round = 0; round < 20; ++round) {
    const Folder folder;
    std::atomic<int> had = 0;
    std::vector<std::thread> threads;
    for (std::uint64_t hash = 1; hash <= 4; ++hash)
      threads.emplace_back([&, hash] {
        if (claim_checkpoints(*folder.storage, hash, 0, kJob)) ++had;
      });
    for (auto& thread : threads) thread.join();
    CHECK(had == 1);
  }
}

TEST_CASE("owner: a job that goes on with another rate takes the folder with it, and back") {
  const Folder folder;
  REQUIRE(claim_checkpoints(*folder.storage, 7, 0, kJob));
  REQUIRE(claim_checkpoints(*folder.storage, 8, /*accepts=*/7, kOther));
  const auto owner = read_checkpoint_owner(*folder.storage).value();
  CHECK(owner->state_hashes == std::vector<std::uint64_t>{7, 8});
  CHECK(owner->job == kOther);
  CHECK(claim_checkpoints(*folder.storage, 7, 0, kJob));
  CHECK(read_checkpoint_owner(*folder.storage).value()->state_hashes ==
        std::vector<std::uint64_t>{8, 7});
  CHECK_FALSE(claim_checkpoints(*folder.storage, 9, 0, kOther));
}

TEST_CASE("owner: checkpoints of a build that made no such file say whose they are") {
  const Folder folder;
  publish(folder.path, 40, 7);
  CHECK_FALSE(claim_checkpoints(*folder.storage, 8, 0, kOther));
  CHECK_FALSE(fs::exists(folder.path + "/owner.json"));
  CHECK(claim_checkpoints(*folder.storage, 8, /*accepts=*/7, kOther));
  CHECK(read_checkpoint_owner(*folder.storage).value()->has(7));
}

TEST_CASE("owner: nothing of another job is removed or written over") {
  const Folder folder;
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

}  // namespace
}  // namespace starling
