#pragma once
// The machines' events and commands as one line each, for the trace of a replayed seed.

#include <string>

#include "elastic/protocol/worker.h"

namespace starling::sim {

std::string describe(const elastic::WorkerEvent& event);
std::string describe(const elastic::WorkerCommand& command);  // empty: not worth a line
std::string describe(const Message& message);
std::string describe(const Plan& plan);

}  // namespace starling::sim
