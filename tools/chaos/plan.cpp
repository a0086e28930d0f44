#include "tools/chaos/plan.h"

#include <algorithm>
#include <cmath>

#include "tools/chaos/faults/numbers.h"

namespace starling::chaos {
namespace {

Fault draw_one(const Draw& draw, std::uint64_t number) {
  Numbers numbers(draw.seed, number);
  Fault fault;
  fault.at_s = Numbers::round((double(number) + numbers.uniform()) / draw.rate);
  fault.kind = draw.kinds[numbers.below(draw.kinds.size())];
  fault.target = std::floor(numbers.uniform() * 1000) / 1000;
  if (fault.kind->draw) fault.kind->draw(fault, numbers, draw.lease_s);
  return fault;
}

}  // namespace

const FaultKind* kind_with(const Plan& plan, FaultKind::Link change) {
  const auto found = std::find_if(plan.faults.begin(), plan.faults.end(),
                                  [&](const Fault& fault) { return fault.kind->link == change; });
  return found != plan.faults.end() ? found->kind : nullptr;
}

bool disturbs_links(const Plan& plan) {
  return std::any_of(plan.faults.begin(), plan.faults.end(), [](const Fault& fault) {
    return fault.kind->link != FaultKind::Link::kNothing;
  });
}

std::string impossible(const std::vector<const FaultKind*>& kinds, const Beginning& run) {
  std::string why;
  for (const FaultKind* kind : kinds) {
    const std::string reason = kind->impossible ? kind->impossible(run) : std::string();
    if (reason.empty()) return {};
    const std::string text = std::string(kind->word) + ": " + reason;
    if (why.find(text) == std::string::npos) why += (why.empty() ? "" : "; ") + text;
  }
  return why;
}

Draw spread(Draw draw, std::size_t faults) {
  if (draw.seconds > 0) draw.rate = std::min(draw.rate, static_cast<double>(faults) / draw.seconds);
  return draw;
}

std::vector<Fault> draw_faults(const Draw& draw) {
  std::vector<Fault> faults;
  if (draw.kinds.empty() || !(draw.rate > 0)) return faults;
  const auto count = static_cast<std::uint64_t>(std::floor(draw.rate * draw.seconds + 1e-9));
  for (std::uint64_t i = 0; i < count; ++i) faults.push_back(draw_one(draw, i));
  return faults;
}

}  // namespace starling::chaos
