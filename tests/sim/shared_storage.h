#pragma once
// The shared storage of the simulated world: shards and manifests of checkpoints. A shard becomes
// damaged with some probability, silently; that shows when it is loaded.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/membership/leader.h"
#include "tests/sim/numbers.h"
#include "tests/sim/random.h"
#include "tests/sim/settings.h"

namespace starling::sim {

class SharedStorage {
 public:
  SharedStorage(const Settings& settings, const Reference& reference);

  // One at every `checkpoint.every` up to this version, complete, as an earlier run left them.
  std::vector<Checkpoint> fill(Version newest);

  Shard put(Version version, const std::string& file,
            const std::map<SegmentId, SegmentState>& part);
  // Empty: there is a manifest now. Else what is missing.
  std::string store(const elastic::leader_command::Store& order);
  void tidy(const elastic::leader_command::Tidy& tidy);
  // The state of a segment, or nothing: it is damaged or not there.
  std::optional<SegmentState> load(Version version, SegmentId segment) const;
  const StepRecord* record(Version version) const;

 private:
  struct Folder {
    std::map<std::string, std::map<SegmentId, SegmentState>> shards;
    std::optional<elastic::leader_command::Store> manifest;
  };
  const Settings& settings_;
  const Reference& reference_;
  Random random_;
  std::map<Version, Folder> folders_;
};

}  // namespace starling::sim
