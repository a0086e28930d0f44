#pragma once
// What a coordinator's options say to the part that leads.

#include "actors/coordinator/coordinator.h"
#include "elastic/membership/leader_config.h"

namespace starling::actors {

elastic::LeaderConfig leader_config(const CoordinatorOptions& options);

}  // namespace starling::actors
