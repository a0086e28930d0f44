#pragma once
// How many decoders the fuzzing program has: the first byte of an input, modulo this, says which one gets the rest.

namespace starling {

inline constexpr unsigned kWays = 21;

}  // namespace starling
