#pragma once
// The names of the exit codes of the `starling` command (docs/design.md, section 9).

namespace starling {

inline constexpr int kExitDone = 0;
inline constexpr int kExitRefuted = 1;       // a verdict or comparison did not hold
inline constexpr int kExitBadInput = 2;      // arguments, files, keys, versions
inline constexpr int kExitAlone = 3;         // no quorum, no coordinator, too few workers, no log
inline constexpr int kExitStateLost = 4;     // every copy of some state is gone
inline constexpr int kExitInternal = 5;      // a bug
inline constexpr int kExitSignal = 128;      // and the signal's number: ended by it, in order
inline constexpr int kExitTerminated = 143;  // ended by SIGTERM, or as its notice said

}  // namespace starling
