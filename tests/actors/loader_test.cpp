#include "actors/worker/loader.h"

#include <doctest/doctest.h>

#include <caf/all.hpp>
#include <condition_variable>
#include <mutex>

#include "actors/system.h"
#include "tests/actors/patience.h"

namespace starling::actors {
namespace {

using Place = std::pair<Version, MicroBatch>;

// A source that notes what it makes, and makes nothing while it is held.
class Source {
 public:
  Result<Batch> make(Version step, MicroBatch m) {
    std::unique_lock lock(mutex_);
    made_.emplace_back(step, m);
    changed_.notify_all();
    if (!changed_.wait_for(lock, kPatience, [this] { return !held_; }))
      return Error(Code::kInternal, "held for too long");
    if (m == kBad) return Error(Code::kBadInput, "no such data");
    Batch batch;
    batch.draw = {1, step, m};
    return batch;
  }
  BatchSource function() {
    return [this](std::uint64_t step, MicroBatch m) { return make(Version(step), m); };
  }
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  bool has_made(const std::vector<Place>& places) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return made_ == places; });
  }

  static constexpr MicroBatch kBad = 99;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Place> made_;
  bool held_ = false;
};

struct LoaderRig {
  explicit LoaderRig(std::size_t ahead_max = 64)
      : loader(spawn_loader(system, source.function(), ahead_max)) {}
  ~LoaderRig() { self->send_exit(loader, caf::exit_reason::user_shutdown); }

  void ahead(Version version, std::vector<MicroBatch> micro_batches) {
    self->send(loader, LoadAhead{version, std::move(micro_batches)});
  }
  void ask(Version version, MicroBatch m) { self->send(loader, LoadNow{version, m}); }
  Loaded answer() {
    Loaded answer;
    self->receive([&](const Loaded& loaded) { answer = loaded; },
                  caf::after(kPatience) >> [] { FAIL("no answer"); });
    return answer;
  }
  // Asks, and whether the right one came.
  bool gives(Version version, MicroBatch m) {
    ask(version, m);
    const Loaded loaded = answer();
    return loaded.version == version && loaded.micro_batch == m && loaded.error.empty() &&
           loaded.batch->draw == DrawKey{1, version, m};
  }

  Source source;
  caf::actor_system_config config = make_system_config();
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  caf::actor loader;
};

}  // namespace

TEST_CASE("loader: what will be wanted is made ahead, the oldest first, and once") {
  LoaderRig rig;
  rig.source.hold(true);
  rig.ahead(6, {3});
  REQUIRE(rig.source.has_made({{6, 3}}));
  rig.ahead(7, {1, 2});
  rig.ahead(6, {3, 4, 5});
  rig.source.hold(false);
  REQUIRE(rig.source.has_made({{6, 3}, {6, 4}, {6, 5}, {7, 1}, {7, 2}}));
  for (const Place& p : {Place{6, 3}, {6, 4}, {6, 5}, {7, 1}, {7, 2}})
    CHECK(rig.gives(p.first, p.second));
  CHECK(rig.source.has_made({{6, 3}, {6, 4}, {6, 5}, {7, 1}, {7, 2}}));
}

TEST_CASE("loader: what was not announced is made when it is asked for") {
  LoaderRig rig;
  CHECK(rig.gives(3, 5));
  CHECK(rig.gives(3, 4));
  CHECK(rig.source.has_made({{3, 5}, {3, 4}}));
}

TEST_CASE("loader: what is asked for at once goes before what is wanted later") {
  LoaderRig rig;
  rig.source.hold(true);
  rig.ahead(0, {0, 1, 2});
  REQUIRE(rig.source.has_made({{0, 0}}));
  rig.ask(0, 2);
  rig.source.hold(false);
  CHECK(rig.answer().micro_batch == 2);
  CHECK(rig.source.has_made({{0, 0}, {0, 2}, {0, 1}}));  // and 2 not once more
  CHECK(rig.gives(0, 0));
  CHECK(rig.gives(0, 1));
}

// Goal: a share that is larger than what is kept ahead is not made in vain.
TEST_CASE("loader: what is kept is limited, and nothing that is wanted is thrown away") {
  LoaderRig rig(/*ahead_max=*/2);
  rig.ahead(0, {0, 1, 2, 3, 4});
  REQUIRE(rig.source.has_made({{0, 0}, {0, 1}}));
  for (const MicroBatch m : std::vector<MicroBatch>{0, 1, 2, 3, 4}) CHECK(rig.gives(0, m));
  CHECK(rig.source.has_made({{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}}));
}

// A share that another worker took over must not fill the room for good.
TEST_CASE("loader: what belongs to steps that are over makes room") {
  LoaderRig rig(/*ahead_max=*/2);
  rig.ahead(0, {0, 1, 2});
  REQUIRE(rig.source.has_made({{0, 0}, {0, 1}}));
  rig.ahead(3, {7, 8});
  CHECK(rig.source.has_made({{0, 0}, {0, 1}, {3, 7}, {3, 8}}));
}

TEST_CASE("loader: a batch that cannot be made is an answer with the reason") {
  LoaderRig rig;
  rig.ahead(0, {Source::kBad});
  rig.ask(0, Source::kBad);
  const Loaded loaded = rig.answer();
  CHECK(loaded.batch == nullptr);
  CHECK(loaded.error == "no such data; loading micro-batch 99 of step 0");
  CHECK(rig.gives(0, 1));
}

}  // namespace starling::actors
