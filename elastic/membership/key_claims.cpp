#include "elastic/membership/key_claims.h"

#include "core/base/check.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {

// Another life of this key that may go on: not surely dead, and in a running plan or in none yet.
const Join* KeyClaims::other_life(const Incarnation& who, const std::string& name) const {
  for (const auto& [nonce, worker] : group_.workers()) {
    if (nonce == who.nonce || worker.dead || worker.join.name != name) continue;
    bool runs = !worker.planned;
    for (const Plan* plan : roster_.running_plans())
      runs = runs || rank_in(*plan, worker.join.who).has_value();
    if (runs) return &worker.join;
  }
  return nullptr;
}

// A worker that ended without a word, with its guard, may be started again at once: for a lease it
// is not known whether the life before it goes on. Messages that were under way when the new life
// asked prove nothing.
void KeyClaims::heard(const Incarnation& who) {
  for (auto& [nonce, claim] : claims_)
    if (claim.other == who.nonce && roster_.now_ms() > claim.asked_ms + lease_ms_ / 2)
      claim.other_lives = true;
}

KeyClaims::Ruling KeyClaims::ask(const Incarnation& who, const std::string& name) {
  const Join* other = other_life(who, name);
  if (!other) {
    claims_.erase(who.nonce);
    return {};
  }
  const std::uint64_t now_ms = roster_.now_ms();
  if (claims_.size() >= kMax && !claims_.count(who.nonce)) claims_.clear();
  Claim& claim = claims_.try_emplace(who.nonce, Claim{other->who.nonce, now_ms}).first->second;
  if (claim.other != other->who.nonce) claim = {other->who.nonce, now_ms};
  const bool lives = claim.other_lives;
  if (!lives && (now_ms <= claim.asked_ms + lease_ms_ || !roster_.silent(other->who)))
    return {Answer::kAskAgain, other};
  claims_.erase(who.nonce);
  return lives ? Ruling{Answer::kInUse, other} : Ruling{};
}

void KeyClaims::check_invariants() const {
  STARLING_CHECK(claims_.size() <= kMax);
  for (const auto& [nonce, claim] : claims_) {
    STARLING_CHECK(nonce != claim.other);
    STARLING_CHECK(claim.asked_ms <= roster_.now_ms());
  }
}

}  // namespace starling::elastic
