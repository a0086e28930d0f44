#pragma once
// What the kernel says of network interfaces. Pure: text in, numbers out.

#include <cstdint>
#include <optional>
#include <string>

namespace starling::chaos {

// Since the interface was made.
struct Packets {
  std::uint64_t received = 0, sent = 0;
  bool operator==(const Packets&) const = default;
};

// Of /proc/net/dev. None: there is no such interface.
std::optional<Packets> packets_of(const std::string& table, const std::string& interface);

// Packets that netem has let go, of `tc -s -j qdisc show dev X`; 0: there is none.
std::uint64_t delayed_packets(const std::string& qdiscs);

}  // namespace starling::chaos
