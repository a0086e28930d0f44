#include "actors/gateway/refusals.h"

namespace starling::actors {
namespace {
const std::string kV4 = "::ffff:";  // an IPv4 peer of a socket that takes both
}

std::optional<std::string> Refusals::line(const Refusal& refusal, Clock::time_point now) {
  std::erase_if(said_, [&](const auto& said) { return now - said.second >= kAgain; });
  if (said_.count(refusal.public_key) > 0) return std::nullopt;  // the peer tries again and again
  if (said_.size() >= kLinesMax) {
    ++unsaid_;
    return std::nullopt;
  }
  said_.emplace(refusal.public_key, now);
  std::string text =
      !refusal.why.empty() ? (refusal.waits ? "does not let in a worker by its token yet, "
                                            : "refused a worker by its token, ") +
                                 refusal.why
      : refusal.public_key.empty() ? "refused a peer that shows no key"
      : refusal.name.empty()
          ? "refused a key that is not on the list, " + refusal.public_key
          : "refused the key of " + refusal.name + ", which is no longer on the list";
  const bool v4 = refusal.address.rfind(kV4, 0) == 0;
  text += "; it came from " + (v4 ? refusal.address.substr(kV4.size()) : refusal.address);
  if (unsaid_ > 0) text += "; and " + std::to_string(unsaid_) + " more refused before";
  unsaid_ = 0;
  return text;
}

}  // namespace starling::actors
