#pragma once
// Finds the known word that a mistyped one was probably meant to be, for messages.

#include <string>
#include <string_view>
#include <vector>

namespace starling {

// The first known word that `word` begins ("lease" for "lease_ms"), else the nearest by inserted,
// deleted and replaced letters; empty: none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace starling
