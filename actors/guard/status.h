#pragma once
// These exit statuses of a worker process mean something to its guard.

namespace starling::actors {

// A fenced worker's guard starts a new life. Used between worker and guard only.
inline constexpr int kFencedStatus = 75;  // it was left out of a plan
// The worker's memory changed, or its GPU failed. A death: the guard tells the coordinators.
inline constexpr int kDamagedStatus = 76;
// The job is done, and this worker does not have the model that it was to save. No death.
inline constexpr int kNotHereStatus = 6;

}  // namespace starling::actors
