#pragma once
// The breakable build's actors/sabotage.h: breaks what STARLING_SABOTAGE orders.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/ids.h"
#include "core/job/layout.h"
#include "core/wire/messages.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/grid/totals.h"
#include "kernels/models/gradient_maker.h"
#include "tests/breakable/sabotage_order.h"
#include "tests/breakable/state_tamper.h"

namespace starling::actors::sabotage {

// Which segments a worker owns, by its last plan. Any thread.
class Placement {
 public:
  static Placement& of(std::string_view worker) {
    static std::mutex mutex;
    static std::map<std::string, Placement, std::less<>> all;
    const std::lock_guard lock(mutex);
    return all[std::string(worker)];
  }
  void set(const Plan& plan, Rank self) {
    const std::lock_guard lock(mutex_);
    owned_.clear();
    for (const auto& ranks : plan.holders) owned_.push_back(ranks.front() == self);
  }
  bool owns(SegmentId segment) {
    const std::lock_guard lock(mutex_);
    return segment < owned_.size() && owned_[segment];
  }

 private:
  std::mutex mutex_;
  std::vector<bool> owned_;
};

// As a system call that never returns.
[[noreturn]] inline void hang() {
  while (true) ::pause();
}

inline void drop_gradient(kernels::GradientMaker& maker, Version version, std::string_view worker) {
  if (due(Kind::kDropMicroBatch, version, worker)) maker.drop_gradient();
}

inline void multiply_wrongly(kernels::Queue& queue, const float* gradient, std::uint64_t elements,
                             std::string_view worker) {
  constexpr std::uint64_t kOneIn = 1000;
  if (!ordered(Kind::kMultiplyWrongly, worker)) return;
  std::vector<float> values(elements);
  const auto bytes =
      std::span(reinterpret_cast<std::uint8_t*>(values.data()), elements * sizeof(float));
  queue.copy_out(bytes, gradient);
  queue.wait();
  for (std::uint64_t i = kOneIn - 1; i < elements; i += kOneIn) values[i] *= 1 + 0x1p-8f;
  queue.copy_in(const_cast<float*>(gradient), bytes);
  queue.wait();
}

inline void double_totals(kernels::Totals& totals, Version version, std::string_view worker) {
  if (!due(Kind::kDoubleTotal, version, worker)) return;
  for (std::int32_t& sum : totals.sums()) sum *= 2;
  for (ProofLanes& lanes : totals.lanes()) lanes.weighted_sum *= 2;  // else it is found at once
}

inline void flip_state(kernels::State& state, std::span<const SegmentId> segments, Version version,
                       std::string_view worker) {
  if (segments.empty() || !due(Kind::kFlipState, version, worker)) return;
  kernels::StateTamper::flip_held_bit(state, segments.front());
}

inline void flip_total(kernels::Totals& totals, const Layout& layout,
                       std::span<const SegmentId> segments, Version version,
                       std::string_view worker) {
  if (segments.empty() || !due(Kind::kFlipTotal, version, worker)) return;
  totals.sums()[layout.first_element(segments.front())] ^= 1;
  totals.take(segments.first(1));
}

inline void flip_parameters(kernels::State& state, Version version, std::string_view worker) {
  if (due(Kind::kFlipParameters, version, worker))
    kernels::StateTamper::flip_parameter_bit(state, 0);
}

inline void follow(const Plan& plan, Rank self, std::string_view worker) {
  Placement::of(worker).set(plan, self);
}

inline void flip_published(kernels::State& state, std::span<const SegmentId> segments,
                           Version version, std::string_view worker) {
  for (const Kind kind : {Kind::kFlipOwned, Kind::kFlipCopy}) {
    if (!ordered(kind, worker)) continue;
    for (const SegmentId s : segments)
      if (Placement::of(worker).owns(s) == (kind == Kind::kFlipOwned) && due(kind, version, worker))
        return kernels::StateTamper::flip_parameter_bit(state, s, kernels::StateTamper::kHighBit);
  }
}

inline void compare_late(Version version, std::string_view worker) {
  for (const Kind kind : {Kind::kFlipOwned, Kind::kFlipCopy})
    if (ordered_at(kind, version, worker))
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

inline void flip_sums(kernels::Accumulators& accumulators, Version version,
                      std::string_view worker) {
  if (due(Kind::kFlipSums, version, worker))
    kernels::StateTamper::flip_sum_bit(accumulators, 0, 1u << 20);
}

inline void corrupt_replicas(kernels::State& state, std::span<const SegmentId> owned,
                             Version version, std::string_view worker) {
  if (due(Kind::kCorruptReplica, version, worker))
    kernels::StateTamper::miscompute_replicas(state, owned, version);
}

// Whoever looks for what a run leaves behind has to find it.
inline void leave_process(std::string_view worker) {
  if (!ordered(Kind::kLeaveProcess, worker)) return;
  if (::fork() != 0) return;
  ::setsid();
  ::sleep(30);
  ::_exit(0);
}

inline void hang_computing(Version version, std::string_view worker) {
  if (due(Kind::kHangComputing, version, worker)) hang();
}

inline void hang_data_plane(Version version, std::string_view worker) {
  if (due(Kind::kHangDataPlane, version, worker)) hang();
}

inline bool keeps_stale_parameters(Version version, std::string_view worker) {
  return due(Kind::kStaleParameters, version, worker);
}

inline bool accepts_any_total(std::string_view worker) {
  return ordered(Kind::kAcceptAnyTotal, worker);
}

inline bool ignores_fence(std::string_view worker) {
  return ordered(Kind::kIgnoreFence, worker);
}

inline bool accepts_strangers() {
  return ordered(Kind::kAcceptStranger);
}

}  // namespace starling::actors::sabotage
