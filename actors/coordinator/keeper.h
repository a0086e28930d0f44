#pragma once
// A Keeper carries out a coordinator's orders for the store of checkpoints: manifests that make them complete, and
// what is to be withdrawn, doubted and removed. What it owes of these last longer than a store that is away.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/base/ids.h"
#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "elastic/membership/coordinator.h"

namespace starling::actors {

struct CheckpointsGone {  // published versions that are not there any more
  std::vector<Version> versions;
};

// Threads: belongs to one. Each function blocks for the store.
class Keeper {
 public:
  Keeper(const Job& job, const JobId& run, const Layout& layout, std::unique_ptr<Storage> storage);

  // `term`: in which the sender of the order leads. Writes and removes nothing in the store of another job, a newer
  // run or a newer leader (core/formats/checkpoint_owner.h).
  elastic::coordinator_event::Stored store(
      std::uint64_t term, const elastic::coordinator_command::StoreCheckpoint& order);
  CheckpointsGone tidy(std::uint64_t term,
                       const elastic::coordinator_command::TidyCheckpoints& order);

 private:
  using Clock = std::chrono::steady_clock;

  void lead(std::uint64_t term);
  Result<> catch_up();
  void heed(const Result<>& done);
  CheckpointsGone gone(const elastic::coordinator_command::TidyCheckpoints& order);

  const std::unique_ptr<Storage> storage_;
  const bool tended_;
  Manifest form_;  // what all manifests of the job have in common
  CheckpointWriter writer_;
  std::set<Version> told_;
  // What is owed: to be withdrawn and doubted, from the lowest version that an order of this term named.
  Version above_ = kNoVersion, doubted_ = kNoVersion;
  std::optional<Clock::time_point> away_since_;
};

}  // namespace starling::actors
