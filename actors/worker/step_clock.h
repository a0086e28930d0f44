#pragma once
// StepClock measures where the time of every step of a quiet run goes at
// one worker (`starling worker --times`): a few looks at the clock a step.

#include <time.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/ids.h"

namespace starling::actors {

// A step passes these marks in this order.
enum class StepMark : std::uint8_t {
  kBegun,     // the micro-batches were ordered; they may wait for parameters that come
  kComputed,  // the last of the share is done
  kChecked,   // the working parameters are unchanged
  kReduced,   // all totals of held segments are there
  kDigested,  // the digest's part, where one is due
  kNormed,    // the partial norm; each total is the sum of its parts (the fifth proof lane)
  kPassed,
  kApplied,  // the accumulators are empty, the held segments at the next version and published
  kTold,     // the coordinators are told, the next step is open
  // The working parameters of the next version are there,
  // with checksums; the next step has begun by then.
  kGathered,
};
inline constexpr std::size_t kStepMarks = 10;

struct StepTimes {
  Version version = 0;
  std::uint32_t world = 0;
  std::array<std::int64_t, kStepMarks> at_ns{};  // of the machine's monotonic clock
  // Processor time of the marking thread until the mark.
  std::array<std::int64_t, kStepMarks> work_ns{};
  std::int64_t computing_ns = 0;  // the sum of what the own micro-batches took
  // Time before kApplied of comparing checksums of held
  // state; noting the new ones reads as many bytes once more.
  std::int64_t state_check_ns = 0;
  std::int64_t totals_check_ns = 0;  // before kApplied: comparing those of the totals
  std::uint64_t sent_bytes = 0;      // to other workers since this one began, until kGathered
  bool operator==(const StepTimes&) const = default;
};

// StepClock does nothing and reads no clock without a place for its results. It does not keep a
// step in which a mark is missing (its epoch began or ended in it). Threads: belongs to one thread.
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kStepsMax = 1'000'000;  // kept; 150 bytes each

  explicit StepClock(std::vector<StepTimes>* kept) : kept_(kept) {}

  Clock::time_point now() const { return kept_ ? Clock::now() : Clock::time_point(); }
  void begin(Version version, std::uint32_t world) {
    if (!kept_) return;
    if (next_ == std::size_t(StepMark::kGathered)) gathering_ = step_;
    step_ = {};
    step_.version = version;
    step_.world = world;
    next_ = 0;
    mark(StepMark::kBegun);
  }
  void mark(StepMark mark) { this->mark(mark, now()); }
  void mark(StepMark mark, Clock::time_point at) {
    if (!kept_ || std::size_t(mark) != next_) return;
    note(step_, mark, at);
    ++next_;
  }
  void computed(Version version, std::chrono::nanoseconds took) {
    if (version == step_.version) step_.computing_ns += took.count();
  }
  // Counts `begun` to `between` as comparing state, and from there until now as comparing totals.
  void checked(Clock::time_point begun, Clock::time_point between) {
    step_.state_check_ns += std::chrono::nanoseconds(between - begun).count();
    step_.totals_check_ns += std::chrono::nanoseconds(now() - between).count();
  }
  // Ends the step before the one that has begun, or the last one if none has.
  void end(std::uint64_t sent_bytes) {
    if (!kept_) return;
    if (next_ == std::size_t(StepMark::kGathered)) {
      gathering_ = step_;
      next_ = kStepMarks;
    }
    if (!gathering_) return;
    note(*gathering_, StepMark::kGathered, now());
    gathering_->sent_bytes = sent_bytes;
    if (kept_->size() < kStepsMax) kept_->push_back(*gathering_);
    gathering_.reset();
  }

 private:
  static void note(StepTimes& step, StepMark mark, Clock::time_point at) {
    timespec work{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &work);
    const auto k = static_cast<std::size_t>(mark);
    step.work_ns[k] = std::int64_t{work.tv_sec} * 1'000'000'000 + work.tv_nsec;
    step.at_ns[k] = std::chrono::nanoseconds(at.time_since_epoch()).count();
  }

  std::vector<StepTimes>* const kept_;
  StepTimes step_;
  std::size_t next_ = kStepMarks;       // its next mark; past the last: no step has begun
  std::optional<StepTimes> gathering_;  // the step before, which lacks only its last mark
};

}  // namespace starling::actors
