#include "actors/coordinator/keeper.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace starling::actors {
namespace {

using elastic::coordinator_command::StoreCheckpoint;
using elastic::coordinator_command::TidyCheckpoints;

constexpr JobId kRun{1};

// A store in memory that is away for what `away` says: its calls fail, and say so.
class Objects : public Storage {
 public:
  using Away = std::function<bool(const std::string& call, const std::string& name)>;
  Objects(std::map<std::string, std::string>& objects, Away& away)
      : objects_(objects), away_(away) {}

  Result<> make() override { return ok(); }
  Result<> put(const std::string& name, std::span<const ByteView> pieces) override {
    STARLING_TRY(ask("put", name));
    std::string text;
    for (const ByteView piece : pieces) text.append(piece.begin(), piece.end());
    objects_[name] = text;
    return ok();
  }
  Result<bool> put_new(const std::string& name, const std::string& text) override {
    STARLING_TRY(ask("put", name));
    return objects_.emplace(name, text).second;
  }
  Result<> replace(const std::string& name, const std::string& text) override {
    STARLING_TRY(ask("put", name));
    objects_[name] = text;
    return ok();
  }
  Result<std::optional<std::string>> get(const std::string& name, std::size_t) const override {
    STARLING_TRY(ask("get", name));
    const auto at = objects_.find(name);
    return at == objects_.end() ? std::optional<std::string>() : std::optional(at->second);
  }
  Result<std::unique_ptr<StoredObject>> open(const std::string&) const override {
    return std::unique_ptr<StoredObject>();
  }
  Result<std::optional<std::uint64_t>> size(const std::string& name) const override {
    STARLING_TRY(text, get(name, 0));
    return text ? std::optional<std::uint64_t>(text->size()) : std::nullopt;
  }
  Result<std::vector<std::string>> folders() const override {
    STARLING_TRY(ask("list", ""));
    std::set<std::string> found;
    for (const auto& [name, text] : objects_)
      if (const auto slash = name.find('/'); slash != name.npos)
        found.insert(name.substr(0, slash));
    return std::vector<std::string>(found.begin(), found.end());
  }
  Result<> remove(const std::string& name) override {
    STARLING_TRY(ask("remove", name));
    objects_.erase(name);
    return ok();
  }
  Result<> remove_folder(const std::string& folder) override {
    STARLING_TRY(ask("remove", folder));
    std::erase_if(objects_, [&](const auto& o) { return o.first.starts_with(folder + "/"); });
    return ok();
  }
  std::string place(const std::string& name) const override { return "objects://" + name; }

 private:
  Result<> ask(const std::string& call, const std::string& name) const {
    if (away_ && away_(call, name)) return Error(Code::kUnavailable, "away");
    return ok();
  }
  std::map<std::string, std::string>& objects_;
  Away& away_;
};

struct KeeperRig {
  KeeperRig() {
    for (const Version version : {Version{10}, Version{20}, Version{30}})
      REQUIRE(keeper.store(1, checkpoint(version)).error.empty());
  }

  // Of one segment, whose shard is there.
  StoreCheckpoint checkpoint(Version version) {
    objects[checkpoint_folder(version) + "/shard"] = "x";
    StoreCheckpoint order;
    order.checkpoint.version = version;
    order.record.version = version - 1;
    order.checkpoint.digest = {1, 2};
    order.shards = {{"shard", 1, {{0, {1, 2}}}}};
    return order;
  }
  static TidyCheckpoints order(Version above, Version doubted, std::vector<Version> kept) {
    TidyCheckpoints tidy;
    tidy.below = kept.empty() ? Version{0} : kept.front();
    tidy.kept = std::move(kept);
    tidy.above = above;
    tidy.doubted = doubted;
    return tidy;
  }
  std::vector<Version> there() { return list_checkpoints(Objects(objects, none)).value(); }
  std::vector<Version> doubts() {
    std::vector<Version> all;
    for (const Version version : there())
      all.push_back(read_manifest(Objects(objects, none), version).value().checkpoint.doubted_from);
    return all;
  }

  Layout layout{{{"w", {1}}}, 1};
  std::map<std::string, std::string> objects;
  Objects::Away away, none;
  Keeper keeper{job_of_keeper(), kRun, layout, std::make_unique<Objects>(objects, away)};

  static Job job_of_keeper() {
    Job job;
    job.name = "kept";
    job.checkpoint.dir = "/nowhere";
    job.checkpoint.every = 10;
    return job;
  }
};

const auto kAll = [](const std::string&, const std::string&) { return true; };

TEST_CASE(
    "keeper: what is withdrawn while the store is away goes before the next checkpoint comes") {
  KeeperRig rig;
  rig.away = kAll;
  rig.keeper.tidy(1, KeeperRig::order(10, kNoVersion, {10}));
  CHECK(rig.there().size() == 3);
  CHECK_FALSE(rig.keeper.store(1, rig.checkpoint(20)).error.empty());
  rig.away = nullptr;
  CHECK(rig.keeper.store(1, rig.checkpoint(20)).error.empty());  // the job has come here again
  CHECK(rig.there() == std::vector<Version>{10, 20});
  rig.keeper.tidy(1, KeeperRig::order(kNoVersion, kNoVersion, {10, 20}));
  CHECK(rig.there() == std::vector<Version>{10, 20});
}

TEST_CASE("keeper: an order that a part of fails is carried out by the next") {
  for (const char* call : {"list", "get", "remove", "put"}) {
    CAPTURE(call);
    KeeperRig rig;
    rig.away = [&](const std::string& asked, const std::string& name) {
      return asked == call && (asked == "list" || name.ends_with("30/manifest.json"));
    };
    rig.keeper.tidy(1, KeeperRig::order(20, 5, {10, 20}));
    rig.away = nullptr;
    rig.keeper.tidy(1, KeeperRig::order(kNoVersion, kNoVersion, {10, 20}));
    CHECK(rig.there() == std::vector<Version>{10, 20});
    CHECK(rig.doubts() == std::vector<Version>{5, 5});
  }
}

TEST_CASE(
    "keeper: a checkpoint whose mark the store refuses while it is away stays, and is marked "
    "later") {
  KeeperRig rig;
  rig.away = [](const std::string& call, const std::string& name) {
    return call == "put" && name.ends_with("manifest.json");
  };
  rig.keeper.tidy(1, KeeperRig::order(kNoVersion, 5, {10, 20, 30}));
  CHECK(rig.there().size() == 3);
  rig.away = nullptr;
  CHECK(rig.keeper.store(1, rig.checkpoint(40)).error.empty());
  CHECK(rig.doubts() == std::vector<Version>{5, 5, 5, kNoVersion});
}

TEST_CASE("keeper: what an earlier term owed is not done in a later one") {
  KeeperRig rig;
  rig.away = kAll;
  rig.keeper.tidy(1, KeeperRig::order(10, 5, {10}));
  rig.away = nullptr;
  rig.keeper.tidy(3, KeeperRig::order(kNoVersion, kNoVersion, {10, 20, 30}));
  CHECK(rig.there() == std::vector<Version>{10, 20, 30});
  CHECK(rig.doubts() == std::vector<Version>{kNoVersion, kNoVersion, kNoVersion});
}

TEST_CASE("keeper: a store that goes away while it is tidied is asked for nothing more") {
  for (const char* call : {"get", "remove"}) {
    CAPTURE(call);
    KeeperRig rig;
    for (Version given_up = 1; given_up < 10; ++given_up)
      rig.objects[checkpoint_folder(given_up) + "/shard"] = "x";
    int in_vain = 0;
    rig.away = [&](const std::string& asked, const std::string& name) {
      const bool begins = asked == call && name.starts_with(checkpoint_folder(1));
      if (in_vain > 0 || begins) ++in_vain;
      return in_vain > 0;
    };
    rig.keeper.tidy(1, KeeperRig::order(kNoVersion, kNoVersion, {30}));
    CHECK(in_vain == 2);  // the list of what is there after it is the other
    rig.away = nullptr;
    rig.keeper.tidy(1, KeeperRig::order(kNoVersion, kNoVersion, {30}));
    CHECK(Objects(rig.objects, rig.none).folders().value() ==
          std::vector<std::string>{checkpoint_folder(30)});
  }
}

}  // namespace
}  // namespace starling::actors
