// One key, two workers: a worker's key is its name, so a second one that has it is not let in while
// the first one lives. Both are told.

#include <utility>

#include "elastic/membership/leader.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {
namespace {
constexpr std::size_t kClaimsMax = 64;
}

// A life with this key that may go on: neither dead for certain nor left out of the plans that run.
const Group::Worker* Leader::other_life(const Incarnation& who, const std::string& name) const {
  for (const auto& [nonce, worker] : group_.workers()) {
    if (nonce == who.nonce || worker.dead || worker.join.name != name) continue;
    bool runs = !worker.planned;
    for (const Plan* plan : roster_.running_plans())
      runs = runs || rank_in(*plan, worker.join.who).has_value();
    if (runs) return &worker;
  }
  return nullptr;
}

// A worker that ended without a word, with its guard, may be started again at once: for a lease it
// is not known whether the life before it goes on. What was under way when the new one asked proves
// nothing.
void Leader::note_claims(const Incarnation& heard) {
  for (auto& [nonce, claim] : claims_)
    if (claim.other == heard.nonce && now_ms_ > claim.asked_ms + config_.lease_ms / 2)
      claim.other_lives = true;
}

bool Leader::key_in_use(const Incarnation& from, const std::string& name, const Join& m) {
  const Group::Worker* other = other_life(from, name);
  if (!other) {
    claims_.erase(from.nonce);
    return false;
  }
  const std::uint64_t nonce = other->join.who.nonce;
  if (claims_.size() >= kClaimsMax && !claims_.count(from.nonce)) claims_.clear();
  Claim& claim = claims_.try_emplace(from.nonce, Claim{nonce, now_ms_, false}).first->second;
  if (claim.other != nonce) claim = {nonce, now_ms_, false};
  if (!claim.other_lives) {
    if (now_ms_ <= claim.asked_ms + config_.lease_ms || !roster_.silent(other->join.who)) {
      send(from, LeaderHint{0, term_, {}});  // so that it asks again
      return true;
    }
    claims_.erase(from.nonce);
    return false;
  }
  const auto place = [](const Join& join) { return join.host + ":" + std::to_string(join.port); };
  const std::string cure =
      "; every worker needs a key of its own (starling keys --split, or --add)";
  send(from,
       Refused{"the key of " + name + " is in use by the worker at " + place(other->join) + cure});
  send(other->join.who,
       LeaderHint{0, term_,
                  "another worker, at " + place(m) + ", has come with the key of this one, " +
                      name + ", and was refused" + cure});
  warn("the key of " + name + " is used by two workers, at " + place(other->join) + " and at " +
       place(m) + ", which was refused" + cure);
  claims_.erase(from.nonce);
  return true;
}

}  // namespace starling::elastic
