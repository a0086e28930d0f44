#pragma once
// Faults that tests plant in elastic/ in order to show that they would be found.
//
// This header is that of the shipped build: there are none, and the compiler drops every branch
// that asks for one. The breakable build puts tests/breakable/include/ before the root of the
// sources and so finds elastic/planted.h there, where a switch can be set (docs/testing.md).

namespace starling::elastic {

inline constexpr bool kBreakable = false;

// One switch, which is off.
struct Planted {
  constexpr operator bool() const { return false; }
};

}  // namespace starling::elastic
