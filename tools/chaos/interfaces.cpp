#include "tools/chaos/interfaces.h"

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

namespace starling::chaos {

std::optional<Packets> packets_of(const std::string& table, const std::string& interface) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    const auto name = line.find_first_not_of(' ');
    if (colon == std::string::npos || line.substr(name, colon - name) != interface) continue;
    std::istringstream fields(line.substr(colon + 1));
    std::array<std::uint64_t, 10> numbers{};  // bytes and packets received, six more, the same sent
    for (auto& number : numbers) fields >> number;
    if (!fields) return std::nullopt;
    return Packets{numbers[1], numbers[9]};
  }
  return std::nullopt;
}

std::uint64_t delayed_packets(const std::string& qdiscs) {
  using Json = nlohmann::json;
  const Json list = Json::parse(qdiscs, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return 0;
  std::uint64_t packets = 0;
  for (const Json& qdisc : list) {
    if (!qdisc.is_object() || !qdisc.contains("kind") || qdisc["kind"] != "netem") continue;
    const auto it = qdisc.find("packets");
    if (it != qdisc.end() && it->is_number_unsigned()) packets += it->get<std::uint64_t>();
  }
  return packets;
}

}  // namespace starling::chaos
