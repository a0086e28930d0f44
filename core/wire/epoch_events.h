#pragma once
// What an epoch's frames tell a worker: collectives say it, elastic decides by it, as the same values.

#include <vector>

#include "core/base/ids.h"
#include "core/base/step_record.h"
#include "core/wire/messages.h"

namespace starling::epoch_event {

struct PeerReady {  // a joiner said ready over a connection of this epoch
  EpochId epoch;
  Rank from = 0;
};
struct LedgerArrived {
  EpochId epoch;
  Rank from = 0;
  Version version = 0;
  std::vector<LedgerRow> rows;
};
struct VoteArrived {
  EpochId epoch;
  Rank from = 0;
  Vote vote;
};
struct GatherBegun {  // the first gather frame of this epoch arrived, with which a joiner enters
  EpochId epoch;
  Version version = 0;
  StepRecord record;  // of step version-1
};
struct Gathered {  // working parameters and exponents of `version` are complete
  EpochId epoch;
  Version version = 0;
};

}  // namespace starling::epoch_event
