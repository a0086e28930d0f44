#pragma once
// A simulated worker's memory: accumulators, totals, state, working parameters.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/sums.h"
#include "core/base/proof.h"
#include "tests/sim/numbers.h"

namespace starling::sim {

struct Store {
  explicit Store(const Numbers& numbers);

  collectives::Sums sums();
  // One part of it: all its uses.
  void add(const Contribution& contribution, Version version, PartId part);
  // What a sink does that counts the last use of a part of several twice.
  void count_again(PartId part);
  // So many micro-batches, and no more, were added to all of these segments.
  bool added_to(SegmentRange segments, std::uint32_t micro_batches) const;
  // Working parameters of one segment; what is there at that version is not written again.
  void set_params(SegmentId segment, const SegmentParams& p, Version version);
  bool has_params(SegmentRange segments, Version version) const;
  // The working parameters change, and nothing notes it. A second change never undoes a first one.
  void flip(SegmentId segment) { ++params[segment].weights; }
  // What is there of this version, or of any, is as it was set.
  bool params_intact(Version version = kNoVersion) const;
  void clear_accumulators();
  void clear_totals();
  // The entries of one segment among those that arrived.
  std::vector<SideEntry> side_of(SegmentId segment) const;
  std::span<const std::int32_t> total_of(SegmentId segment) const;
  std::uint64_t total_hash(SegmentId segment) const;
  // The first segment that this rank holds whose total is not what its fifth lane says.
  std::optional<SegmentId> wrong_total(const std::vector<std::vector<Rank>>& holders,
                                       Rank self) const;

  const Numbers& numbers;
  // Of the step in flight.
  Version adding = kNoVersion;  // step of what the accumulators hold; none: empty
  std::vector<std::int32_t> accumulators;
  std::vector<ProofLanes> lanes;
  std::vector<SideEntry> side;
  std::vector<std::int32_t> totals;
  std::vector<ProofLanes> total_lanes;
  std::vector<SideEntry> received;
  Version accepted_version = kNoVersion;  // step of the accepted totals
  std::vector<bool> accepted;             // per segment
  // What lives on from step to step.
  std::vector<bool> held;
  std::vector<SegmentState> states;
  std::vector<SegmentParams> params;
  std::vector<std::uint64_t> params_sums;  // checksums, as they were set
  std::vector<Version> params_versions;    // kNoVersion: nothing came yet
};

}  // namespace starling::sim
