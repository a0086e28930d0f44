// The engine's part of checkpoints: a copy of the owned state for the one that writes, and the
// state that a fresh start begins with.

#include <utility>

#include "actors/worker/engine.h"
#include "core/base/check.h"
#include "kernels/optim/optimizer.h"

namespace starling::actors {

using namespace elastic::worker_command;
namespace event = elastic::worker_event;

// The state has label `version` between Apply and the next one, both in this thread: a plain copy
// is consistent. It takes as long as copying the owned state within memory does.
void Engine::execute(const WriteCheckpoint& c) {
  if (!staged_)
    staged_ = std::make_shared<SegmentStates>(
        layout_, kernels::moments(options_.setup->job.optimizer.kind) == 2);
  staged_->clear();
  for (const SegmentId s : c.segments) {
    STARLING_CHECK(state_.label(s) == c.version);
    if (!state_.intact(s)) return end_damaged("the state", s);
    staged_->add(state_.values(s));
    breathe();
  }
  // Nobody else ever writes a file of this name, so one that was left out disturbs nobody.
  ShardOrder order{c.version, c.record, {}, std::move(staged_)};
  order.file = "shard-" + to_string(c.epoch) + "-" + to_string(options_.join.who) + ".safetensors";
  staged_.reset();
  calls_.write_shard(std::move(order));
}

void Engine::on_shard(ShardDone done) {
  staged_ = std::move(done.states);
  if (!done.written.error.empty())
    log_.warn("checkpoint not written",
              {{"version", done.written.version}, {"cause", done.written.error}});
  handle(event::CheckpointWritten{std::move(done.written)});
}

void Engine::execute(const Initialise& c) {
  if (c.version == 0) {
    state_.initialise(options_.setup->parameters, options_.setup->exponents, [this] { breathe(); });
    return handle(event::Initialised{c.epoch});
  }
  LoadOrder order{c.epoch, c.version, {}, std::make_shared<std::atomic<std::uint32_t>>(0)};
  for (SegmentId s = 0; s < layout_.segments(); ++s)
    if (c.segments[s]) order.segments.push_back(s);
  loading_ = order;
  calls_.load(std::move(order));
}

void Engine::on_loaded(const LoadDone& done) {
  if (loading_ && loading_->epoch == done.epoch) loading_.reset();
  if (over_ || !epochs_.count(done.epoch)) return;  // that plan is over
  if (!done.states) return handle(event::NotInitialised{done.epoch, done.error, done.here});
  for (const SegmentValues& values : done.states->all()) {
    state_.hold(values.id);
    if (auto set = state_.set_values(values, done.version); !set)
      return handle(event::NotInitialised{done.epoch, set.error().text(), false});
    breathe();
  }
  handle(event::Initialised{done.epoch, done.record});
}

}  // namespace starling::actors
