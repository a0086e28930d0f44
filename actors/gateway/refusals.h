#pragma once
// Refusals makes a server's lines about peers that it did not let in: one
// line per key, and few enough for a person to read, however many try.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace starling::actors {

struct Refusal {
  std::string public_key;  // Z85; empty: the ZAP question held none
  std::string name;        // that the key had before it was revoked; empty: never known
  std::string address;     // of the peer, as libzmq tells it
  std::string why{};       // of a token that was refused; empty: of a key
  bool waits = false;      // it cannot be told now: the token will be shown again
};

// Threads: belongs to one thread.
class Refusals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kAgain{60};  // the same key is named once in that time
  static constexpr std::size_t kLinesMax = 8;        // of all keys in that time

  // Returns the line to log, if one is due now.
  std::optional<std::string> line(const Refusal& refusal, Clock::time_point now);

 private:
  std::map<std::string, Clock::time_point> said_;  // by key; at most kLinesMax
  std::uint64_t unsaid_ = 0;                       // refusals of others since the last line
};

}  // namespace starling::actors
