// Faults of coordinators.

#include <signal.h>

#include <algorithm>

#include "tools/chaos/disturber.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {

std::vector<Target> Disturber::sorted_coordinators() const {
  auto there = calls_.coordinators();
  std::sort(there.begin(), there.end(),
            [](const Target& a, const Target& b) { return a.name < b.name; });
  return there;
}

void Disturber::kill_coordinator(std::size_t number, double now) {
  const auto there = sorted_coordinators();
  if (there.size() < 3)
    return hold_back(number, std::to_string(there.size()) + " coordinators are up");
  if (!full_.empty()) return hold_back(number, "one has no space");
  const Target target = there[static_cast<std::size_t>(deeds_[number].fault.target *
                                                       static_cast<double>(there.size()))];
  ::kill(target.pid, SIGKILL);
  hit(number, now, "kill -9", {target});
  expect_gone(number, now, target);
  expect_again(number, now, target);
}

// A new process of that name.
void Disturber::expect_again(std::size_t number, double now, const Target& target) {
  expect(
      number, now, kSoon_s, target.name + " is there again",
      [this, target] {
        for (const Target& other : calls_.coordinators())
          if (other.name == target.name && other.pid != target.pid) return true;
        return false;
      },
      [=, this](double then) { deeds_[number].until_t = then; });
}

}  // namespace starling::chaos
