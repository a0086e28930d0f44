#pragma once
// The breakable build's elastic/planted.h: every switch is off until a test sets it.

namespace starling::elastic {

inline constexpr bool kBreakable = true;

using Planted = bool;

}  // namespace starling::elastic
