#include "actors/sabotage.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace starling::actors {
namespace {

constexpr std::array<std::pair<std::string_view, Sabotage>, 10> kNames{{
    {"drop-micro-batch", Sabotage::kDropMicroBatch},
    {"double-total", Sabotage::kDoubleTotal},
    {"stale-parameters", Sabotage::kStaleParameters},
    {"flip-state", Sabotage::kFlipState},
    {"flip-total", Sabotage::kFlipTotal},
    {"flip-parameters", Sabotage::kFlipParameters},
    {"corrupt-replica", Sabotage::kCorruptReplica},
    {"ignore-fence", Sabotage::kIgnoreFence},
    {"leave-process", Sabotage::kLeaveProcess},
    {"accept-stranger", Sabotage::kAcceptStranger},
}};

const SabotageOrder& order() {
  static const SabotageOrder from_environment = [] {
    const char* text = std::getenv("STARLING_SABOTAGE");
    return text ? parse_sabotage(text).value_or(SabotageOrder{}) : SabotageOrder{};
  }();
  return from_environment;
}

}  // namespace

std::optional<SabotageOrder> parse_sabotage(std::string_view text) {
  SabotageOrder order;
  const auto at = text.find('@');
  const std::string_view name = text.substr(0, at);
  for (const auto& [known, kind] : kNames)
    if (known == name) order.kind = kind;
  if (order.kind == Sabotage::kNone) return std::nullopt;
  if (at == text.npos) return order;
  text.remove_prefix(at + 1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), order.version);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.empty()) return order;
  if (text.front() != '@' || text.size() == 1) return std::nullopt;
  order.worker = text.substr(1);
  return order;
}

bool sabotage_ordered(Sabotage kind, std::string_view worker) {
  return order().kind == kind && (order().worker.empty() || order().worker == worker);
}

bool sabotage_due(Sabotage kind, Version version, std::string_view worker) {
  static std::atomic<bool> done = false;
  return sabotage_ordered(kind, worker) && version == order().version && !done.exchange(true);
}

}  // namespace starling::actors
