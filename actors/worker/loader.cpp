#include "actors/worker/loader.h"

#include <deque>
#include <map>
#include <utility>

namespace starling::actors {
namespace {

using Key = std::pair<Version, MicroBatch>;

class Loader : public caf::event_based_actor {
 public:
  Loader(caf::actor_config& config, BatchSource source, std::size_t ahead_max)
      : event_based_actor(config), source_(std::move(source)), ahead_max_(ahead_max) {}

  caf::behavior make_behavior() override {
    return {
        [this](const LoadAhead& ahead) {
          for (MicroBatch m : ahead.micro_batches) wanted_.emplace_back(ahead.version, m);
          load_next();
        },
        [this](const LoadNow& now) -> Loaded {
          const Key key{now.version, now.micro_batch};
          const auto it = ready_.find(key);
          if (it == ready_.end()) return make(key);
          Loaded loaded = std::move(it->second);
          ready_.erase(it);
          return loaded;
        },
        [this](tick_atom) {
          scheduled_ = false;
          load_next();
        },
    };
  }

 private:
  // One at a time, so that a LoadNow never waits for more than one that is being made.
  void load_next() {
    if (!wanted_.empty()) {
      const Key key = wanted_.front();
      wanted_.pop_front();
      if (!ready_.count(key)) ready_.emplace(key, make(key));
      while (ready_.size() > ahead_max_) ready_.erase(ready_.begin());
    }
    if (!wanted_.empty() && !scheduled_) {
      scheduled_ = true;
      send(this, tick_atom_v);
    }
  }

  Loaded make(const Key& key) const {
    Loaded loaded{key.first, key.second, nullptr, {}};
    auto batch = source_(key.first, key.second);
    if (batch)
      loaded.batch = std::make_shared<const Batch>(std::move(batch).value());
    else
      loaded.error = batch.error().text();
    return loaded;
  }

  const BatchSource source_;
  const std::size_t ahead_max_;
  std::deque<Key> wanted_;
  std::map<Key, Loaded> ready_;  // oldest first
  bool scheduled_ = false;
};

}  // namespace

caf::actor spawn_loader(caf::actor_system& system, BatchSource source, std::size_t ahead_max) {
  return system.spawn<Loader, caf::detached>(std::move(source), ahead_max);
}

}  // namespace starling::actors
