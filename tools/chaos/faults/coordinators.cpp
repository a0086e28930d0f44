#include "tools/chaos/faults/coordinators.h"

#include <algorithm>

namespace starling::chaos {

std::vector<judge::Target> whole_coordinators(Disturbance& it) {
  auto there = it.run().calls.coordinators();
  std::sort(there.begin(), there.end(),
            [](const judge::Target& a, const judge::Target& b) { return a.name < b.name; });
  if (there.size() >= 3 && it.run().full_coordinators.empty()) return there;
  it.hold_back(there.size() < 3 ? std::to_string(there.size()) + " coordinators are up"
                                : "one has no space");
  return {};
}

std::string too_few_coordinators(const Beginning& run) {
  if (run.coordinators >= 3) return {};
  return "it needs three coordinators (--coordinators)";
}

void expect_again(Disturbance& it, const judge::Target& target) {
  it.expect(
      kSoon_s, target.name + " is there again",
      [&run = it.run(), target] {
        for (const judge::Target& other : run.calls.coordinators())
          if (other.name == target.name && other.pid != target.pid) return true;
        return false;
      },
      [&it] { it.lasts_until(it.run().now); });
}

}  // namespace starling::chaos
