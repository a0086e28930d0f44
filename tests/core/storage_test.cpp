#include "core/formats/storage.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"
#include "core/formats/shard.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// A store that can do what Storage asks and nothing more: no folders, no renaming, no appending.
class Shelf : public Storage {
 public:
  Result<> make() override { return ok(); }
  Result<> put(const std::string& name, std::span<const ByteView> pieces) override {
    std::string text;
    for (const ByteView piece : pieces) text.append(piece.begin(), piece.end());
    objects_[name] = text;
    return ok();
  }
  Result<bool> put_new(const std::string& name, const std::string& text) override {
    return objects_.emplace(name, text).second;
  }
  Result<std::optional<std::string>> get(const std::string& name, std::size_t max) const override {
    const auto at = objects_.find(name);
    if (at == objects_.end()) return std::optional<std::string>();
    return std::optional<std::string>(at->second.substr(0, max + 1));
  }
  Result<std::unique_ptr<StoredObject>> open(const std::string& name) const override {
    struct Object : StoredObject {
      std::uint64_t size() const override { return text.size(); }
      Result<> read(std::uint64_t from, std::span<std::uint8_t> out) const override {
        if (from > text.size() || out.size() > text.size() - from)
          return Error(Code::kBadInput, "ended");
        std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(from), out.size(), out.begin());
        return ok();
      }
      const std::string& place() const override { return where; }
      std::string text, where;
    };
    const auto at = objects_.find(name);
    if (at == objects_.end()) return std::unique_ptr<StoredObject>();
    auto object = std::make_unique<Object>();
    object->text = at->second;
    object->where = place(name);
    return object;
  }
  Result<std::optional<std::uint64_t>> size(const std::string& name) const override {
    const auto at = objects_.find(name);
    if (at == objects_.end()) return std::optional<std::uint64_t>();
    return std::optional<std::uint64_t>(at->second.size());
  }
  Result<std::vector<std::string>> folders() const override {
    std::set<std::string> found;
    for (const auto& [name, text] : objects_)
      if (const auto slash = name.find('/'); slash != std::string::npos)
        found.insert(name.substr(0, slash));
    return std::vector<std::string>(found.begin(), found.end());
  }
  Result<> replace(const std::string& name, const std::string& text) override {
    objects_[name] = text;
    return ok();
  }
  Result<> remove(const std::string& name) override {
    objects_.erase(name);
    return ok();
  }
  Result<> remove_folder(const std::string& folder) override {
    std::erase_if(objects_, [&](const auto& o) { return o.first.starts_with(folder + "/"); });
    return ok();
  }
  std::string place(const std::string& name) const override { return "shelf://" + name; }

 private:
  std::map<std::string, std::string> objects_;
};

struct OnShelf {
  std::unique_ptr<Storage> storage = std::make_unique<Shelf>();
};

struct InFolder {
  InFolder() {
    std::string name = (fs::temp_directory_path() / "starling-storage-XXXXXX").string();
    path = ::mkdtemp(name.data());
    storage = open_storage(path);
  }
  ~InFolder() { fs::remove_all(path); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;
  std::string path;
  std::unique_ptr<Storage> storage;
};

Result<> put(Storage& storage, const std::string& name, const std::string& text) {
  const ByteView bytes = as_bytes(std::span<const char>(text));
  const std::size_t half = bytes.size() / 2;
  const ByteView pieces[] = {bytes.first(half), bytes.subspan(half)};
  return storage.put(name, pieces);
}

TEST_CASE_TEMPLATE("storage: an object is there whole, is replaced whole, and goes", Store,
                   InFolder, OnShelf) {
  Store at;
  Storage& storage = *at.storage;
  REQUIRE(storage.make());
  CHECK_FALSE(storage.get("step-1/a", 100).value());
  CHECK_FALSE(storage.open("step-1/a").value());
  CHECK_FALSE(storage.size("step-1/a").value());
  REQUIRE(put(storage, "step-1/a", "abcdef"));
  CHECK(storage.get("step-1/a", 100).value() == "abcdef");
  CHECK(storage.size("step-1/a").value() == 6);
  REQUIRE(put(storage, "step-1/a", "xyz"));
  CHECK(storage.get("step-1/a", 100).value() == "xyz");
  REQUIRE(storage.remove("step-1/a"));
  CHECK_FALSE(storage.get("step-1/a", 100).value());
  CHECK(storage.remove("step-1/a"));  // what is not there is no error
}

TEST_CASE_TEMPLATE("storage: more than the limit is cut one byte behind it", Store, InFolder,
                   OnShelf) {
  Store at;
  REQUIRE(put(*at.storage, "a", "abcdef"));
  CHECK(at.storage->get("a", 6).value() == "abcdef");
  CHECK(at.storage->get("a", 3).value() == "abcd");
}

TEST_CASE_TEMPLATE("storage: parts of an open object are read, and nothing behind its end", Store,
                   InFolder, OnShelf) {
  Store at;
  REQUIRE(put(*at.storage, "a", "abcdef"));
  const auto object = at.storage->open("a").value();
  CHECK(object->size() == 6);
  std::uint8_t three[3];
  REQUIRE(object->read(2, three));
  CHECK(std::string(three, three + 3) == "cde");
  CHECK_FALSE(object->read(4, three));
}

TEST_CASE_TEMPLATE("storage: the first of two takes a new name", Store, InFolder, OnShelf) {
  Store at;
  CHECK(at.storage->put_new("owner", "first").value());
  CHECK_FALSE(at.storage->put_new("owner", "second").value());
  CHECK(at.storage->get("owner", 100).value() == "first");
}

TEST_CASE_TEMPLATE("storage: folders are told without what they hold, and go with it", Store,
                   InFolder, OnShelf) {
  Store at;
  for (const char* name : {"step-1/a", "step-1/b", "step-2/a", "alone"})
    REQUIRE(put(*at.storage, name, "x"));
  auto folders = at.storage->folders().value();
  std::sort(folders.begin(), folders.end());
  CHECK(folders == std::vector<std::string>{"step-1", "step-2"});
  CHECK(at.storage->remove_folder("step-1"));
  CHECK(at.storage->folders().value() == std::vector<std::string>{"step-2"});
  CHECK_FALSE(at.storage->size("step-1/b").value());
  CHECK(at.storage->size("alone").value() == 1);
}

TEST_CASE("storage: what is no file is refused, and is no missing object") {
  InFolder at;
  fs::create_directory(at.path + "/folder");
  CHECK_FALSE(at.storage->get("folder", 100));
  CHECK_FALSE(at.storage->open("folder"));
  CHECK_FALSE(open_file(at.path + "/none").value());
}

// ---- Checkpoints ask nothing more of a store ----------------------------------------------------

Layout layout_of_two() {
  return Layout({{"a", {300}}, {"b", {700}}}, /*segment_blocks=*/3);
}

Manifest store_checkpoint(Storage& storage, const Layout& layout, Version version) {
  Manifest m;
  m.checkpoint.version = version;
  m.record.version = version - 1;
  m.state_hash = 7;
  m.job = "[job]\nname = \"first\"\n";
  m.segments = layout.segments();
  m.segment_blocks = layout.segment_blocks();
  for (SegmentId s = 0; s < layout.segments(); ++s) {
    const std::size_t blocks = layout.block_count(s);
    std::vector<float> weights(blocks * kBlock), first(blocks * kBlock);
    for (std::uint32_t b = 0; b < blocks; ++b)
      std::fill_n(weights.begin() + b * kBlock, layout.used(layout.first_block(s) + b),
                  static_cast<float>(version) + static_cast<float>(s) / 4);
    const std::vector<std::int16_t> exponents(blocks, 3);
    const SegmentValues values{s, weights, first, {}, exponents};
    const auto shard = write_shard(storage, checkpoint_folder(version),
                                   "shard-" + std::to_string(s), layout, std::span(&values, 1));
    REQUIRE_MESSAGE(shard, shard.error().text());
    m.shards.push_back(shard.value());
    m.checkpoint.digest = m.checkpoint.digest + shard.value().segments[0].digest;
  }
  return m;
}

TEST_CASE_TEMPLATE("storage: a checkpoint is there with its manifest, loads, and goes", Store,
                   InFolder, OnShelf) {
  Store at;
  Storage& storage = *at.storage;
  const Layout layout = layout_of_two();
  const JobId run{1};
  const CheckpointWriter first{7, 0, "[job]\nname = \"first\"\n", run};
  const CheckpointWriter second{8, 0, "[job]\nname = \"second\"\n", run};
  CHECK(take_checkpoints(storage, first));
  CHECK_FALSE(take_checkpoints(storage, second));
  for (const Version version : {Version{10}, Version{20}}) {
    const Manifest manifest = store_checkpoint(storage, layout, version);
    CHECK(list_checkpoints(storage).value().size() == version / 10 - 1);
    const auto published = publish_checkpoint(storage, manifest);
    REQUIRE_MESSAGE(published, published.error().text());
    CHECK(read_manifest(storage, version).value().shards == manifest.shards);
  }
  CHECK(list_checkpoints(storage).value() == std::vector<Version>{10, 20});

  const Manifest read = read_manifest(storage, 20).value();
  ShardReader reader(storage, checkpoint_folder(20), layout, /*second=*/false);
  SegmentStates states(layout, false);
  for (const Shard& shard : read.shards) REQUIRE(reader.read(shard, shard.segments[0], states));
  CHECK(states[0].weights[0] == 20.0f);

  REQUIRE(storage.remove(checkpoint_folder(20) + "/shard-0"));
  ShardReader again(storage, checkpoint_folder(20), layout, false);
  CHECK(again.read(read.shards[0], read.shards[0].segments[0], states).error().code() ==
        Code::kCorrupt);
  CHECK_FALSE(publish_checkpoint(storage, read));

  REQUIRE(doubt_own_checkpoints(storage, second, 15));  // of another job
  CHECK(read_manifest(storage, 20).value().checkpoint.doubted_from == kNoVersion);
  for (const Version from : {Version{15}, Version{17}})
    REQUIRE(doubt_own_checkpoints(storage, first, from));
  CHECK(read_manifest(storage, 20).value().checkpoint.doubted_from == Version{15});
  CHECK(read_manifest(storage, 10).value().checkpoint.doubted_from == kNoVersion);
  remove_own_checkpoints(storage, first, 20, {20});
  CHECK(list_checkpoints(storage).value() == std::vector<Version>{20});
  REQUIRE(withdraw_own_checkpoints(storage, first, 10));
  CHECK(list_checkpoints(storage).value().empty());
  give_up_checkpoints(storage, run);
  CHECK_FALSE(read_checkpoint_owner(storage).value());
}

}  // namespace
}  // namespace starling
