#include "tools/chaos/disturber.h"

#include <algorithm>
#include <utility>

namespace starling::chaos {

Disturber::Disturber(const Plan& plan, DisturberOptions options, DisturberCalls calls, Cast& cast,
                     const judge::Story& story)
    : faults_(plan.faults), run_{options, std::move(calls), cast, story, {}, {}, {}} {
  for (const Fault& fault : faults_)
    run_.deeds.push_back({.kind = fault.kind->word,
                          .judged = fault.kind->judged,
                          .shown = fault.kind->shown,
                          .planned_s = fault.at_s,
                          .for_s = fault.for_s});
  for (std::size_t i = 0; i < faults_.size(); ++i)
    disturbances_.emplace_back(run_, faults_[i], run_.deeds[i]);
}

void Disturber::advance(double now, double first_step_t) {
  run_.now = now;
  run_.first_step_t = first_step_t;
  run_.agenda.advance(now);
  while (next_ < disturbances_.size() && first_step_t + faults_[next_].at_s <= now) {
    Disturbance& next = disturbances_[next_++];
    next.fault().kind->begin(next);
  }
}

void Disturber::end(double now) {
  run_.now = now;
  run_.agenda.drop();
  for (std::size_t i = 0; i < disturbances_.size(); ++i) {
    judge::Deed& deed = run_.deeds[i];
    if (deed.outcome != judge::Deed::Outcome::kDone) continue;
    if (const auto give_back = faults_[i].kind->end) give_back(disturbances_[i]);
    deed.until_t = std::min(std::max(deed.t, deed.until_t), now);
    for (judge::Effect& effect : deed.effects)
      if (!effect.seen && effect.after_s == 0) effect.overtaken = true;
  }
}

}  // namespace starling::chaos
