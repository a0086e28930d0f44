#pragma once
// EpochRun is one epoch as a worker runs it.
//
// Threads: none; a value that belongs to the worker.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/wire/messages.h"

namespace starling::elastic {

// An EpochRun is the state of one epoch at this worker, from Connect to Stop or Leave.
struct EpochRun {
  enum class Stage : std::uint8_t {
    kConnecting,  // connections, or the state of a life that joins, are not there yet
    kStep,        // gathering, computing, reducing: whatever the vote still needs
    kVoted,
    kFinished,  // at the last version
  };

  std::shared_ptr<const Plan> plan;
  Rank self = 0;
  Stage stage = Stage::kConnecting;
  bool connected = false;
  Version first = kNoVersion;  // first step of the epoch (moves count from it)
  std::set<Rank> ready_joiners;
  std::uint32_t ready_attempt = 0;  // attempt whose transport is ready here; 0: none
  bool on_device = false;           // at rank 0, for people: the way of the epoch's bytes, and why
  std::string transport_why;
  // The step in flight:
  Version voting = kNoVersion;  // the step whose vote is next
  std::vector<Rank> shares;     // of it: rank of each micro-batch
  std::uint32_t attempt = 0;    // of the device transport that takes its bytes; 0: TCP (R17)
  bool share_ended = false;
  std::optional<ExactWords> norm;  // there with the totals
  Digest digest_part{};            // of the owned segments at label `voting`; comes with `norm`
  std::set<SegmentId> moves_due;   // segments whose state must arrive in this step
  std::set<SegmentId> moved_in;    // arrived in this epoch
  std::map<Rank, Vote> votes;
  std::set<Rank> rows_of;  // ranks whose rows came, and all that they sent before

  std::uint32_t world() const { return static_cast<std::uint32_t>(plan->members.size()); }
  bool joiner() const { return plan->members[self].joiner; }
};

}  // namespace starling::elastic
