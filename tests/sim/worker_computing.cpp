// The compute thread of a simulated worker: micro-batches of its share, and those that it computes a
// second time.

#include <algorithm>
#include <functional>
#include <utility>

#include "tests/sim/trace.h"
#include "tests/sim/worker_process.h"
#include "tests/sim/world.h"

namespace starling::sim {

using namespace elastic::worker_event;
using namespace elastic::worker_command;

void WorkerProcess::run(const Compute& c) {
  queue_version_ = c.version;
  queue_scale_ = c.scale;
  queue_.assign(c.micro_batches.begin(), c.micro_batches.end());
  if (computing_ && !computing_->again && computing_->version == c.version)
    std::erase(queue_, computing_->m);  // it is finished and counts (R8)
  for (const MicroBatch m : again_) events_.push_back(Rechecked{again_version_, m, {}});
  again_version_ = c.version;
  again_.assign(c.again.begin(), c.again.end());
  compute_next();
}

// As long as a micro-batch takes at most.
void WorkerProcess::run(const Evaluate& c) {
  world_.after(world_.settings().compute.high, [this, c] {
    when_not_hung([this, c] {
      submit([this, c] {
        world_.count("last version evaluated");
        handle(Evaluated{c.version, Numbers::evaluation(Numbers::hash_of(store_.params))});
      });
    });
  });
}

void WorkerProcess::compute_next() {
  if (computing_ || (queue_.empty() && again_.empty())) return;
  const bool again = queue_.empty();
  auto& queue = again ? again_ : queue_;
  const MicroBatch m = queue.front();
  queue.pop_front();
  if (!again) world_.oracle().begins(*this, queue_version_, m);
  const auto parts = world_.numbers().layout().parts().size();
  computing_.emplace();
  computing_->again = again;
  computing_->version = queue_version_;
  computing_->scale = queue_scale_;
  computing_->m = m;
  computing_->took = micro_batch_time();
  computing_->parts_left = PartId(parts);
  if (const auto p = PartId(random_.below(2 * parts)); p < parts) computing_->rests_at = p;
  read_parts();
}

void WorkerProcess::read_parts() {
  if (!alive_ || !computing_ || computing_->resting) return;
  if (world_.now() < hung_until_)
    return when_not_hung([this] { submit([this] { read_parts(); }); });
  Computing& now = *computing_;
  const auto& parts = world_.numbers().layout().parts();
  while (now.parts_read < parts.size()) {
    const Part& part = parts[now.parts_read];
    if (!world_.settings().plant_stale_part && !store_.has_params(part.segments, now.version)) {
      world_.count("pass waited for parameters");
      return;
    }
    if (now.rests_at == now.parts_read) {
      now.rests_at.reset();
      now.resting = true;
      return later_in_pass(random_.range(1, now.took + 1), [this] {
        computing_->resting = false;
        read_parts();
      });
    }
    for (const SegmentId s : part.segments) now.read.push_back(store_.params[s]);
    if (++now.parts_read == parts.size()) compute_parts();
  }
}

void WorkerProcess::compute_parts() {
  Computing& now = *computing_;
  const auto parts = now.parts_read;
  now.params = Numbers::hash_of(now.read);
  world_.oracle().computes(*this, now.version, now.m, now.params);
  now.contribution = world_.numbers().contribution(now.version, now.m, now.params, now.scale);
  // The backward pass leaves the last part first, and some time lies between any two.
  std::vector<Micros> times;
  for (PartId p = 1; p < parts; ++p) times.push_back(random_.below(now.took + 1));
  std::sort(times.begin(), times.end(), std::greater<>());
  const Micros took = now.took;
  for (PartId p = parts - 1; p > 0; --p) later_in_pass(times[p - 1], [this, p] { add_parts(p); });
  later_in_pass(took, [this] { finish_micro_batch(); });
}

void WorkerProcess::later_in_pass(Micros when, std::function<void()> action) {
  world_.after(when, [this, pass = pass_, action = std::move(action)] {
    when_not_hung([this, pass, action] {
      submit([this, pass, action] {
        if (pass == pass_) action();
      });
    });
  });
}

// Of the micro-batch in progress, all from this part on.
void WorkerProcess::add_parts(PartId from) {
  Computing& now = *computing_;
  if (now.again) return;
  while (now.parts_left > from) {
    store_.add(now.contribution, now.version, --now.parts_left);
    if (world_.settings().plant_use_twice) store_.count_again(now.parts_left);
  }
  executor_.part_added();
}

void WorkerProcess::hang(Micros duration) {
  if (world_.now() >= hung_until_) hung_since_ = world_.now();
  hung_until_ = std::max(hung_until_, world_.now() + duration);
  world_.trace("worker " + to_string(who_), "hangs for " + std::to_string(duration / kMs) + " ms");
}

Micros WorkerProcess::hung_for(Micros lately) const {
  if (world_.now() >= hung_until_ + lately) return 0;
  return std::min(world_.now(), hung_until_) - hung_since_;
}

void WorkerProcess::when_not_hung(std::function<void()> action) {
  if (!alive_) return;
  if (world_.now() >= hung_until_) return action();
  world_.at(hung_until_, [this, action = std::move(action)] { when_not_hung(action); });
}

// Every other spell is one at full speed.
Micros WorkerProcess::micro_batch_time() {
  const Micros took = World::draw(random_, world_.settings().compute);
  const std::uint64_t most = world_.settings().slow_most;
  if (most == 0) return took;
  if (world_.now() >= slowness_end_) {
    slowness_ = slowness_ > 1 ? 1 : random_.range(2, most);
    slowness_end_ = world_.now() + random_.range(50 * kMs, kSecond);
  }
  return took * slowness_;
}

void WorkerProcess::finish_again() {
  world_.oracle().computed_again(*this, computing_->params);
  if (!alive_) return;
  const Computing done = std::move(*std::exchange(computing_, std::nullopt));
  ++pass_;
  world_.count("micro-batch computed a second time");
  compute_next();
  handle(Rechecked{done.version, done.m, done.contribution.row.contribution});
}

void WorkerProcess::finish_micro_batch() {
  if (computing_->again) return finish_again();
  world_.oracle().computed(*this, computing_->version, computing_->m, computing_->params);
  add_parts(0);
  if (!alive_) return;
  const Computing done = std::move(*std::exchange(computing_, std::nullopt));
  ++pass_;
  compute_next();
  handle(MicroBatchDone{done.version, done.contribution.row,
                        world_.settings().slow_most ? done.took * 1000 : 0});
}

// What R8 forbids: the micro-batch in progress is aborted, what is done does not count.
void WorkerProcess::forget_work() {
  if (computing_ && computing_->again) return;
  computing_.reset();
  queue_.clear();
  ++pass_;
  store_.clear_accumulators();
}

}  // namespace starling::sim
