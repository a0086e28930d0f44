#pragma once

#include <chrono>

namespace starling::actors {

inline constexpr auto kPatience = std::chrono::seconds(60);  // only a failing test waits that long

}  // namespace starling::actors
