#pragma once
// Exit statuses of a worker process after which its guard starts a new life. Between the two only.

namespace starling::actors {

inline constexpr int kFencedStatus = 75;   // it was left out of a plan
inline constexpr int kDamagedStatus = 76;  // its memory changed: a death, told to the coordinators

}  // namespace starling::actors
