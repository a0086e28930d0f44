#pragma once
// Finds where a disturbed run's numbers are not the undisturbed run's, to the bit. Pure.

#include <cstddef>
#include <optional>
#include <string>

#include "tools/judge/deed.h"

namespace starling::judge {

// A Difference is the first version of which both runs tell, and not with the same bits.
struct Difference {
  Version version = 0;
  bool norm_only = false;  // the same parameters, another sum of gradients
  std::string text;
};

// These compare loss, norm and metrics of the steps; the first compares evaluations, too. An
// evaluation of version v tries the parameters with which step v begins.
std::optional<Difference> first_difference(const Evidence& evidence);
std::optional<Difference> first_difference_of_steps(const Evidence& evidence);

// Says what is compared: "losses and norms of 7 steps, 2 evaluations".
std::string compared_text(const Story& loud);

std::string count_of(std::size_t n, const std::string& what);  // "1 step", "2 steps"

}  // namespace starling::judge
