#include "actors/gateway/control_counters.h"

#include <vector>

namespace starling::actors {
namespace {

constexpr std::array<const char*, std::size_t(Drop::kCount)> kReasons{
    "wrong_job",     "not_for_me",  "oversize", "malformed",  "unknown",
    "other_version", "wrong_key",   "revoked",  "wrong_role", "no_route",
    "queue_full",    "link_broken", "newcomer", "stranger"};
static_assert(kReasons.back() != nullptr);

}  // namespace

void ControlCounters::look_at(const Gateway& gateway) {
  refused_handshakes = gateway.refused_handshakes();
  for (std::size_t i = 0; i < dropped.size(); ++i) dropped[i] = gateway.dropped(Drop(i));
}

void ControlCounters::write(Exposition& out) const {
  out.counter("starling_refused_handshakes", "Connections whose key is not let in.",
              refused_handshakes.load());
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < dropped.size(); ++i)
    samples.push_back({label("reason", kReasons[i]), static_cast<double>(dropped[i].load())});
  out.counter("starling_dropped_messages",
              "Control messages that were not handed over, and connections that showed no key.",
              samples);
}

}  // namespace starling::actors
