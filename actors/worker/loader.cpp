#include "actors/worker/loader.h"

#include <algorithm>
#include <caf/all.hpp>
#include <map>
#include <set>
#include <utility>

#include "core/base/exception.h"
#include "core/base/thread_name.h"

namespace starling::actors {
namespace {

using Key = std::pair<Version, MicroBatch>;

class Loader : public caf::event_based_actor {
 public:
  Loader(caf::actor_config& config, BatchSource source, std::size_t ahead_max)
      : event_based_actor(config), source_(std::move(source)), ahead_max_(ahead_max) {}

  caf::behavior make_behavior() override {
    name_thread("loader");
    return {
        [this](const LoadAhead& ahead) {
          forget_what_is_over(ahead.version);
          for (MicroBatch m : ahead.micro_batches)
            if (const Key key{ahead.version, m}; !ready_.count(key)) wanted_.insert(key);
          load_soon();
        },
        [this](const LoadNow& now) -> Loaded {
          const Key key{now.version, now.micro_batch};
          wanted_.erase(key);
          load_soon();  // there is room for one more
          const auto it = ready_.find(key);
          Loaded loaded = it == ready_.end() ? make(key) : std::move(it->second);
          if (it != ready_.end()) ready_.erase(it);
          loaded.scale = now.scale;
          loaded.again = now.again;
          loaded.asked = now.asked;
          return loaded;
        },
        [this](tick_atom) {
          scheduled_ = false;
          load_next();
        },
    };
  }

 private:
  // When a worker asks one step ahead, another with the same loader may be one step behind it.
  void forget_what_is_over(Version ahead) {
    const Key oldest{std::max<Version>(ahead, 2) - 2, 0};
    wanted_.erase(wanted_.begin(), wanted_.lower_bound(oldest));
    ready_.erase(ready_.begin(), ready_.lower_bound(oldest));
  }

  // Loads one at a time, so that a LoadNow waits for one load under way at most.
  void load_soon() {
    if (scheduled_) return;
    scheduled_ = true;
    send(this, tick_atom_v);
  }

  void load_next() {
    if (wanted_.empty() || ready_.size() >= ahead_max_) return;
    const Key key = *wanted_.begin();
    wanted_.erase(wanted_.begin());
    ready_.emplace(key, make(key));
    load_soon();
  }

  Loaded make(const Key& key) const {
    Loaded loaded;
    loaded.version = key.first;
    loaded.micro_batch = key.second;
    auto batch = try_to_load(key);
    if (batch) {
      loaded.batch = std::make_shared<const Batch>(std::move(batch).value());
    } else {
      loaded.error = batch.error().text();
      loaded.error_code = batch.error().code();
    }
    return loaded;
  }

  static std::string work_of(const Key& key) {
    return "loading micro-batch " + std::to_string(key.second) + " of step " +
           std::to_string(key.first);
  }

  // The source may be the application's, and throw.
  Result<Batch> try_to_load(const Key& key) const {
    try {
      auto batch = source_(key.first, key.second);
      if (!batch) return std::move(batch).error().in(work_of(key));
      return batch;
    } catch (...) {
      return error_of_exception(work_of(key));
    }
  }

  const BatchSource source_;
  const std::size_t ahead_max_;
  std::set<Key> wanted_;         // oldest first
  std::map<Key, Loaded> ready_;  // by micro-batch; none of these keys is in wanted_
  bool scheduled_ = false;
};

}  // namespace

caf::actor spawn_loader(caf::actor_system& system, BatchSource source, std::size_t ahead_max) {
  return system.spawn<Loader, caf::detached>(std::move(source), ahead_max);
}

}  // namespace starling::actors
