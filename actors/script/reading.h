#pragma once
// Reading is what the processes of a script have read of its data beside passes, batch by batch. Each
// process reads all: what a Dataset gives may depend on the process. The data are known once every
// process has, and their digest is the sum of the batches'. After that each goes round again, as data
// may change. Of the time of passes one part in five is for reading until that was two seconds, in
// which small data are read whole, one part in fifty after that, one in 200 for going round again.
//
// Threads: none; DataReader locks.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/hash.h"

namespace starling::actors::script {

// DataRead says what processes have read of the data.
struct DataRead {
  // Whether all processes have read all. Not for ever: another process takes the place of one
  // that is lost, and each goes round again, as data may change.
  bool over = false;
  std::optional<Digest> digest;  // of all samples; over and nothing: they cannot be compared
};

class Reading {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  // A Process is how far one of them has read. Its owner lets it go when the process is gone.
  class Process {
    friend class Reading;
    std::uint64_t next_ = 0;            // batch of this round
    std::uint64_t read_ = 0;            // batches of the first round
    std::deque<std::uint64_t> failed_;  // that could not be read, in the order of their tries
    Clock::time_point again_{};         // when they are tried again
    Duration pause_ = kPauseMin;        // between tries
    Duration left_{};                   // of the time that reading may take
    Duration took_{};                   // by the last batch
  };

  explicit Reading(std::uint64_t batches) : batches_(batches) {}

  std::shared_ptr<Process> begin() {
    std::erase_if(processes_, [](const auto& one) { return one.expired(); });
    auto process = std::make_shared<Process>();
    processes_.push_back(process);
    return process;
  }

  DataRead told() const {
    if (not_compared_) return {true, std::nullopt};
    bool known = !differ_;
    bool any = false;
    for (const auto& one : processes_) {
      const auto process = one.lock();
      if (!process) continue;
      any = true;
      known = known && whole(*process);
    }
    return any && known ? DataRead{true, sum_} : DataRead{};
  }

  // Notes how long a pass of this process took.
  void passed(Process& process, Duration pass) const {
    process.left_ += pass / (whole(process) ? kAgainPart : all_ < kFirst ? kFirstPart : kPart);
  }

  // Returns the batch that this process reads now. `paced`: only if its passes have taken long enough
  // for it; else no batch that it has read.
  std::optional<std::uint64_t> next(Process& process, bool paced, Clock::time_point now) const {
    if (not_compared_ || differ_ || (paced && process.left_ < process.took_)) return std::nullopt;
    if (process.next_ < batches_) return process.next_++;
    if (whole(process)) {
      if (!paced) return std::nullopt;
      process.next_ = 1;
      return 0;
    }
    if (process.failed_.empty() || now < process.again_) return std::nullopt;
    const std::uint64_t batch = process.failed_.front();
    process.failed_.pop_front();
    return batch;
  }

  // Notes that `digest` is what a process has read of a batch; false if this is not what was read
  // before. These data are not known any more.
  bool read(Process& process, std::uint64_t batch, const Digest& digest, Duration took,
            bool paced = true) {
    spent(process, took, paced);
    if (!whole(process) && ++process.read_ == batches_) process.left_ = {};
    process.pause_ = kPauseMin;
    const auto [before, first] = digests_.try_emplace(batch, digest);
    if (first) sum_ = sum_ + digest;
    differ_ = differ_ || before->second != digest;
    return before->second == digest;
  }

  // Notes that these data cannot be compared beyond what they say of themselves.
  void cannot_be_compared() { not_compared_ = true; }

  // Notes that a batch could not be read. In the first round it is read again once all others are and
  // a pause is over, each longer than the one before: data of which a sample can never be read are
  // never known.
  void failed(Process& process, std::uint64_t batch, Duration took, Clock::time_point now,
              bool paced = true) {
    spent(process, took, paced);
    if (whole(process)) return;
    process.failed_.push_back(batch);
    if (process.next_ < batches_) return;
    process.again_ = now + process.pause_;
    process.pause_ = std::min(2 * process.pause_, kPauseMax);
  }

 private:
  bool whole(const Process& process) const { return process.read_ == batches_; }
  void spent(Process& process, Duration took, bool paced) {
    process.took_ = took;
    if (!paced) return;
    process.left_ -= took;
    if (!whole(process)) all_ += took;
  }

  static constexpr Duration kPauseMin = std::chrono::seconds(1);
  static constexpr Duration kPauseMax = std::chrono::seconds(60);
  static constexpr int kFirstPart = 5, kPart = 50, kAgainPart = 200;
  static constexpr Duration kFirst = std::chrono::seconds(2);

  const std::uint64_t batches_;
  std::unordered_map<std::uint64_t, Digest> digests_;  // by batch, as first read
  Digest sum_{};
  Duration all_{};  // of the first rounds, beside passes
  bool not_compared_ = false;
  bool differ_ = false;
  std::vector<std::weak_ptr<Process>> processes_;
};

}  // namespace starling::actors::script
