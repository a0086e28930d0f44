#pragma once
// These read the kernel's numbers of network interfaces. Pure: text in, numbers out.

#include <cstdint>
#include <optional>
#include <string>

namespace starling::chaos {

// Packets counts from the making of the interface.
struct Packets {
  std::uint64_t received = 0, sent = 0;
  bool operator==(const Packets&) const = default;
};

// Reads /proc/net/dev. None: there is no such interface.
std::optional<Packets> packets_of(const std::string& table, const std::string& interface);

// Returns packets that netem has let go, from `tc -s -j qdisc show dev X`; 0: there is none.
std::uint64_t delayed_packets(const std::string& qdiscs);

}  // namespace starling::chaos
