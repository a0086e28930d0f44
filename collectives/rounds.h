#pragma once
// Rounds over a device transport: which segments travel in which round, how much memory a round needs,
// and the order of the rounds. device_reduce.h and device_gather.h say what a round carries.
//
// In every round each owner has ranges of its segments at work, so all members send and receive
// all the time, and a round takes a bounded amount of staging memory. All ranks make the same rounds
// of the same table, so what two of them ask of each other matches.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "collectives/device_transport.h"
#include "collectives/sums.h"
#include "core/base/result.h"

namespace starling::collectives {

// The bytes of sums that the ranges of all owners have together in a round. The same at all ranks.
inline constexpr std::size_t kRoundBytes = 64u << 20;

// Returns the most bytes of sums that an owner has in a round, and so in a range. One segment may have more.
std::size_t range_bytes(std::size_t round_bytes, std::uint32_t world);

// A Cut says which ranges of its segments each owner has at work in which round.
class Cut {
 public:
  Cut(const Layout& layout, const std::vector<std::vector<Rank>>& holders, std::uint32_t world,
      std::size_t round_bytes);
  // Returns the rounds of the owner that has most.
  std::size_t rounds() const;
  // Returns nothing for a round after the owner's last one.
  std::span<const SegmentRange> ranges(Rank owner, std::size_t round) const;

 private:
  std::vector<std::vector<std::vector<SegmentRange>>> ranges_;  // by owner and round
};

// Staging memory that is enough for each round of `self`, whatever copies there are: it depends on
// the owners of segments, which no move of an epoch changes.
std::size_t staging_bytes(const Layout& layout, const std::vector<std::vector<Rank>>& holders,
                          std::uint32_t world, Rank self, std::size_t round_bytes = kRoundBytes);

struct Round {
  std::vector<Transfer> sends, receives;
};

// Lays out what a round receives.
class Staging {
 public:
  explicit Staging(std::byte* at) : at_(at) {}
  std::byte* take(std::size_t bytes) {
    std::byte* const taken = at_;
    if (at_ != nullptr) at_ += bytes;
    return taken;
  }

 private:
  std::byte* at_;
};

// A reduce or a gather. Its errors are about what came over the transport, and name no rank.
class RoundUser {
 public:
  virtual ~RoundUser() = default;
  // Gives the next round; nothing while a frame is still to come, or when over(). `staging` is null
  // if there is no transport, for a user whose rounds have no transfers.
  virtual Result<std::optional<Round>> next(std::byte* staging) = 0;
  // The round that next() gave has ended, and what it receives is there.
  virtual Result<> ended() = 0;
  virtual bool over() const = 0;
};

// Rounds runs one epoch's rounds, one at a time, in the order in which their users were added.
// Threads: one at a time. Ownership: borrows transport and users.
class Rounds {
 public:
  // The transport that was made by this attempt is ready.
  void use(DeviceTransport& transport, std::uint32_t attempt);
  void lose() { transport_ = nullptr, attempt_ = 0, under_way_ = false; }
  std::uint32_t attempt() const { return attempt_; }

  // Adds a user whose rounds go over the transport of that attempt.
  void add(RoundUser& user, std::uint32_t attempt) { users_.push_back({&user, attempt}); }
  void clear() { users_.clear(); }
  bool waiting_for(std::uint32_t attempt) const { return under_way_ && attempt_ == attempt; }

  // Begins what can begin. Errors: a user's; kUnavailable, the transport is not there any more.
  Result<> go();
  // The round under way has ended well; begins what can begin.
  Result<> ended();

 private:
  struct Queued {
    RoundUser* user;
    std::uint32_t attempt;
  };
  DeviceTransport* transport_ = nullptr;
  std::uint32_t attempt_ = 0;
  bool under_way_ = false;
  std::deque<Queued> users_;
};

}  // namespace starling::collectives
