#include "tests/breakable/sabotage_order.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace starling::actors::sabotage {
namespace {

constexpr std::array<std::pair<std::string_view, Kind>, 17> kNames{{
    {"drop-micro-batch", Kind::kDropMicroBatch},
    {"double-total", Kind::kDoubleTotal},
    {"stale-parameters", Kind::kStaleParameters},
    {"accept-any-total", Kind::kAcceptAnyTotal},
    {"flip-state", Kind::kFlipState},
    {"flip-sums", Kind::kFlipSums},
    {"flip-total", Kind::kFlipTotal},
    {"flip-parameters", Kind::kFlipParameters},
    {"flip-owned", Kind::kFlipOwned},
    {"flip-copy", Kind::kFlipCopy},
    {"corrupt-replica", Kind::kCorruptReplica},
    {"multiply-wrongly", Kind::kMultiplyWrongly},
    {"ignore-fence", Kind::kIgnoreFence},
    {"hang-computing", Kind::kHangComputing},
    {"hang-data-plane", Kind::kHangDataPlane},
    {"leave-process", Kind::kLeaveProcess},
    {"accept-stranger", Kind::kAcceptStranger},
}};

const Order& order() {
  static const Order from_environment = [] {
    const char* text = std::getenv("STARLING_SABOTAGE");
    return text ? parse_order(text).value_or(Order{}) : Order{};
  }();
  return from_environment;
}

}  // namespace

std::optional<Order> parse_order(std::string_view text) {
  Order order;
  const auto at = text.find('@');
  const std::string_view name = text.substr(0, at);
  for (const auto& [known, kind] : kNames)
    if (known == name) order.kind = kind;
  if (order.kind == Kind::kNone) return std::nullopt;
  if (at == text.npos) return order;
  text.remove_prefix(at + 1);
  std::uint64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc{}) return std::nullopt;
  order.version = Version(version);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.empty()) return order;
  if (text.front() != '@' || text.size() == 1) return std::nullopt;
  order.worker = text.substr(1);
  return order;
}

bool ordered(Kind kind, std::string_view worker) {
  return order().kind == kind && (order().worker.empty() || order().worker == worker);
}

bool ordered_at(Kind kind, Version version, std::string_view worker) {
  return ordered(kind, worker) && version == order().version;
}

bool due(Kind kind, Version version, std::string_view worker) {
  static std::atomic<bool> done = false;
  return ordered_at(kind, version, worker) && !done.exchange(true);
}

}  // namespace starling::actors::sabotage
