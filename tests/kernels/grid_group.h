#pragma once
// A group of workers without wires or failures: what the step loop does to grid and state, for
// tests that compare groups of different sizes.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/base/check.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_gradients.h"

namespace starling::kernels {

// The gradient of (parameters, step, micro-batch).
using GradientOf =
    std::function<std::vector<float>(std::span<const float> parameters, Version, MicroBatch)>;

// The last two lanes that these entries make for a segment.
inline ProofLanes side_lanes(std::span<const SideEntry> entries, const Layout& layout,
                             SegmentId segment) {
  ProofLanes lanes;
  for (const SideEntry& entry : entries) {
    if (layout.segment_of(entry.block) != segment) continue;
    lanes.side_entries += 1;
    lanes.side_hashes += side_entry_hash(entry);
  }
  return lanes;
}

// By which way sums and parameters go: through the host's memory, or from one to the other within the
// device's.
enum class Way { kHost, kDevice };

class Group {
 public:
  // Segment s is owned by rank s mod W and held by the next rank too. `shuffle` seeds who computes
  // what, in which order sums are added and side entries arrive.
  Group(const Layout& layout, const Job& job, Device& device, std::uint32_t world,
        std::uint64_t shuffle, Way way = Way::kHost)
      : layout_(layout), job_(job), device_(device), way_(way), random_(shuffle) {
    for (Rank r = 0; r < world; ++r) {
      workers_.push_back(std::make_unique<Worker>(layout, job, device));
      for (SegmentId s = 0; s < layout.segments(); ++s) {
        if (s % world == r) workers_[r]->owned.push_back(s);
        if (s % world == r || (s + 1) % world == r) workers_[r]->held.push_back(s);
      }
      for (const SegmentId s : workers_[r]->held) {
        workers_[r]->state.hold(s);
        workers_[r]->totals.hold(s);
      }
    }
  }

  void start(std::span<const float> parameters, std::span<const std::int16_t> exponents) {
    for (auto& worker : workers_) worker->state.initialise(parameters, exponents);
  }

  StepRecord step(const GradientOf& gradient_of) {
    compute(gradient_of);
    for (auto& worker : workers_) add_up(*worker, worker->owned);
    for (auto& worker : workers_) reduce(*worker);
    ExactSum squares;
    for (auto& worker : workers_)
      squares.add(worker->state.partial_norm(worker->totals, worker->owned).squares);
    StepRecord record;
    record.version = version_;
    record.norm = std::sqrt(squares.value());
    record.skipped = !finite_;
    for (auto& worker : workers_) {
      worker->totals.set_pending(version_);
      worker->state.apply(worker->totals, record, worker->held);
      worker->state.publish(worker->owned);
      worker->totals.clear();
      worker->accumulators.clear();
    }
    gather();
    ++version_;
    return record;
  }

  Digest digest() const {
    Digest digest{};
    for (const auto& worker : workers_) digest = digest + worker->state.digest_part(worker->owned);
    return digest;
  }
  // Over the replicas' copies: the same, unless replicas and owners differ.
  Digest replica_digest() const {
    Digest digest{};
    for (const auto& worker : workers_)
      for (const SegmentId s : worker->held)
        if (workers_.size() == 1 || !std::count(worker->owned.begin(), worker->owned.end(), s))
          digest = digest + worker->state.digest_part(std::span(&s, 1));
    return digest;
  }
  State& state(Rank rank) { return workers_[rank]->state; }
  std::uint64_t side_entries() const { return side_entries_; }

 private:
  struct Worker {
    Worker(const Layout& layout, const Job& job, Device& device)
        : accumulators(layout, job.micro_batches, device),
          totals(layout, job.micro_batches, device),
          state(layout, job, device) {}
    Accumulators accumulators;
    Totals totals;
    State state;
    std::vector<SegmentId> owned, held;
  };

  void compute(const GradientOf& gradient_of) {
    std::vector<MicroBatch> order(job_.micro_batches);
    std::iota(order.begin(), order.end(), MicroBatch{0});
    std::shuffle(order.begin(), order.end(), random_);
    finite_ = true;
    for (const MicroBatch m : order) {
      Worker& worker = *workers_[random_() % workers_.size()];
      const auto gradient = gradient_of(worker.state.copy_parameters(), version_, m);
      const auto added = add(worker.accumulators, device_, gradient, worker.state.copy_exponents(),
                             job_.seed, version_, m);
      finite_ = finite_ && added.finite;
      side_entries_ += added.side_entries;
    }
  }

  // Totals of owned segments, on the device transport.
  void add_up(Worker& to, std::span<const SegmentId> owned) {
    if (way_ == Way::kHost) return;
    for (const SegmentId s : owned) {
      std::vector<const std::int32_t*> received;
      for (auto& from : workers_)
        if (from.get() != &to) received.push_back(from->accumulators.address({s, 1}));
      std::shuffle(received.begin(), received.end(), random_);
      to.totals.add({s, 1}, to.accumulators.address({s, 1}), received);
    }
  }

  void reduce(Worker& to) {
    for (auto& from : workers_) from->accumulators.mirror({0, layout_.segments()});
    std::vector<std::size_t> order(workers_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<SideEntry> side;
    for (const SegmentId s : to.held) {
      const auto first = std::size_t{layout_.first_block(s)} * kBlock;
      const auto count = std::size_t{layout_.block_count(s)} * kBlock;
      const auto sums = to.totals.sums().subspan(first, count);
      if (way_ == Way::kHost) std::fill(sums.begin(), sums.end(), 0);
      for (const std::size_t from : order) {
        const Accumulators& part = workers_[from]->accumulators;
        for (std::size_t i = 0; i < count && way_ == Way::kHost; ++i)
          sums[i] += part.sums()[first + i];
        to.totals.lanes()[s] += part.lanes()[s];
        for (const SideEntry& entry : part.side_of({s, 1})) side.push_back(entry);
      }
    }
    if (way_ == Way::kDevice)
      for (const SegmentId s : to.held) {
        Worker& owner = *workers_[s % workers_.size()];
        if (&owner != &to) to.totals.copy({s, 1}, owner.totals.address({s, 1}));
      }
    to.totals.take(to.held);
    STARLING_CHECK(!to.totals.damaged(to.held));
    std::shuffle(side.begin(), side.end(), random_);
    for (const SideEntry& entry : side) STARLING_CHECK(to.totals.add_side(entry).has_value());
    const CompleteLanes complete(job_.seed, version_, job_.micro_batches, layout_.uses_max());
    for (const SegmentId s : to.held) {  // R3, R4
      const ProofLanes received = side_lanes(side, layout_, s);
      STARLING_CHECK(accepted(to.totals.lanes()[s], complete.of(layout_.uses(s)),
                              received.side_entries, received.side_hashes));
    }
  }

  void gather() {
    for (const auto& from : workers_) {
      if (way_ == Way::kDevice) {
        for (const SegmentId s : from->owned)
          for (auto& to : workers_)
            STARLING_CHECK(to == from ||
                           to->state
                               .take_parameters({s, 1}, from->state.parameters({s, 1}),
                                                from->state.proofs({s, 1}),
                                                [](SegmentId) { return true; })
                               .has_value());
        continue;
      }
      std::vector<SegmentRange> ranges;
      for (const SegmentId s : from->owned) ranges.push_back({s, 1});
      const Bytes bytes = from->state.params_bytes(ranges);
      for (auto& to : workers_) STARLING_CHECK(to->state.set_params(bytes).has_value());
    }
  }

  const Layout& layout_;
  const Job job_;
  Device& device_;
  const Way way_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Version version_ = 0;
  bool finite_ = true;
  std::uint64_t side_entries_ = 0;
};

// A worker that holds everything and has totals for step 0.
struct Alone {
  Alone(const Layout& layout, Device& device, Job j)
      : job(std::move(j)), totals(layout, job.micro_batches, device), state(layout, job, device) {
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      state.hold(s);
      totals.hold(s);
      all.push_back(s);
    }
  }
  Job job;
  Totals totals;
  State state;
  std::vector<SegmentId> all;
};

}  // namespace starling::kernels
