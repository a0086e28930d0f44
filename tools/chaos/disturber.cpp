#include "tools/chaos/disturber.h"

#include <algorithm>
#include <utility>

namespace starling::chaos {

Disturber::Disturber(const Plan& plan, DisturberOptions options, DisturberCalls calls, Cast& cast,
                     const Story& story)
    : run_{options, std::move(calls), cast, story, {}, {}, {}} {
  for (const Fault& fault : plan.faults) run_.deeds.emplace_back().fault = fault;
  for (Deed& deed : run_.deeds) disturbances_.emplace_back(run_, deed);
}

void Disturber::advance(double now, double first_step_t) {
  run_.now = now;
  run_.first_step_t = first_step_t;
  run_.agenda.advance(now);
  while (next_ < disturbances_.size() && first_step_t + run_.deeds[next_].fault.at_s <= now) {
    Disturbance& next = disturbances_[next_++];
    next.fault().kind->begin(next);
  }
}

void Disturber::end(double now) {
  run_.now = now;
  run_.agenda.drop();
  for (std::size_t i = 0; i < disturbances_.size(); ++i) {
    Deed& deed = run_.deeds[i];
    if (deed.outcome != Deed::Outcome::kDone) continue;
    if (deed.fault.kind->end) deed.fault.kind->end(disturbances_[i]);
    deed.until_t = std::min(std::max(deed.t, deed.until_t), now);
    for (Effect& effect : deed.effects)
      if (!effect.seen && effect.after_s == 0) effect.overtaken = true;
  }
}

}  // namespace starling::chaos
