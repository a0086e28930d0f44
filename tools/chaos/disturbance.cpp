#include "tools/chaos/disturbance.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace starling::chaos {

std::vector<Player*> Disturbance::choose(const std::vector<Player*>& among) {
  if (among.empty()) hold_back(run_.story.over() ? "the run has ended" : "there is nobody to hit");
  return pick(among);
}

void Disturbance::hold_back(const std::string& why) {
  deed_.outcome = judge::Deed::Outcome::kHeldBack;
  deed_.why = why;
  deed_.t = deed_.until_t = run_.now;
  say(std::string(fault().kind->word) + " held back: " + why);
}

void Disturbance::hit(const std::string& what, std::vector<judge::Target> targets) {
  deed_.outcome = judge::Deed::Outcome::kDone;
  deed_.t = deed_.until_t = run_.now;
  deed_.targets = std::move(targets);
  std::string text = what;
  for (const judge::Target& target : deed_.targets)
    text += (&target == deed_.targets.data() ? " " : ", ") + judge::process_text(target);
  say(text);
}

void Disturbance::expect(double within_s, const std::string& what, std::function<bool()> seen,
                         std::function<void()> then, std::function<bool()> overtaken) {
  const std::size_t index = deed_.effects.size();
  deed_.effects.push_back({what, false, false, 0});
  run_.agenda.expect(
      run_.now + within_s, [seen, overtaken] { return seen() || (overtaken && overtaken()); },
      [this, index, seen, overtaken, then = std::move(then)](bool over, double at) {
        judge::Effect& effect = deed_.effects[index];
        const bool was_seen = over && (!overtaken || seen());
        effect.overtaken = over && !was_seen;
        effect.seen = was_seen;
        effect.after_s = std::max(1e-6, at - deed_.t);
        if (!over) say("NOT SEEN: " + effect.what);
        if (was_seen && then) then();
      });
}

void Disturbance::later(double after_s, std::function<void()> then) {
  run_.agenda.later(run_.now + after_s, [then = std::move(then)](double) { then(); });
}

void Disturbance::say(const std::string& text) {
  char time[32];
  std::snprintf(time, sizeof time, "%8.2f s  ", run_.now - run_.first_step_t);
  run_.calls.say(time + text);
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

}  // namespace starling::chaos
