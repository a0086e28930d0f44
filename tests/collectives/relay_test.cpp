#include "tests/collectives/relay.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "core/base/hash.h"
#include "tests/collectives/node.h"

namespace starling::collectives {
namespace {

using Told = Node::Told;

constexpr std::size_t kPayload = 1000;
constexpr std::size_t kWire = sizeof(FrameHeader) + kPayload + 2 * sizeof(AeadTag);
constexpr Version kFrames = 12;
constexpr const char* kSecretWords = "what the relay must not be able to read";

SharedBytes payload_of(Version v) {
  Bytes bytes(kPayload);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(v * 7 + i);
  std::memcpy(bytes.data() + 100, kSecretWords, std::strlen(kSecretWords));
  return share(std::move(bytes));
}

// Rank 0 dials rank 1 through a relay and sends it frames of one size.
struct Tapped {
  Tapped(SealRule seal, Relay::Change change) : epoch(2) {
    epoch.options.seal = seal;
    epoch.options.local_sockets = false;
    relay = std::make_unique<Relay>(epoch.listeners[1]->port(), std::move(change));
    dialler = epoch.of(0);
    dialler.peers[1].port = relay->port();
    epoch.nodes.push_back(std::make_unique<Node>(dialler, *epoch.listeners[0]));
    epoch.nodes.push_back(std::make_unique<Node>(epoch.of(1), *epoch.listeners[1]));
  }
  void send() {
    epoch.connect();
    for (Version v = 0; v < kFrames; ++v)
      epoch.nodes[0]->mesh->send(1, {.version = v}, payload_of(v));
  }
  Node& receiver() { return *epoch.nodes[1]; }

  MeshGroup epoch;
  std::unique_ptr<Relay> relay;
  MeshOptions dialler;
};

bool contains(const Bytes& all, const char* words) {
  return std::search(all.begin(), all.end(), words, words + std::strlen(words)) != all.end();
}

// Waits for all frames, then changes them as a whole.
Relay::Change on_all(std::function<void(Bytes&)> change) {
  return [change](Bytes& waiting) {
    if (waiting.size() < kFrames * kWire) return Bytes{};
    change(waiting);
    return std::exchange(waiting, {});
  };
}

Bytes::iterator frame(Bytes& all, std::size_t n) {
  return all.begin() + static_cast<std::ptrdiff_t>(n * kWire);
}

// The connection is given up, and whatever was accepted before is what was sent.
void check_given_up(Tapped& tapped) {
  tapped.send();
  tapped.receiver().wait([](const Told& t) { return t.broken.has_value(); });
  const Told told = tapped.receiver().told();
  CHECK(told.broken->first == 0);
  CHECK_MESSAGE(
      told.broken->second.find("does not hold under the connection's key") != std::string::npos,
      told.broken->second);
  CHECK(told.frames.size() < kFrames);
  for (Version v = 0; v < told.frames.size(); ++v) {
    CHECK(told.frames[v].second.header.version == v);
    CHECK(*told.frames[v].second.payload == *payload_of(v));
  }
}

}  // namespace

TEST_CASE("relay: P8, who hands everything on sees no plain text where frames are encrypted") {
  for (const SealRule seal : {SealRule::kOn, SealRule::kAuto, SealRule::kOff}) {
    CAPTURE(static_cast<int>(seal));
    Tapped tapped(seal, unchanged);
    tapped.send();
    tapped.receiver().wait([](const Told& t) { return t.frames.size() == kFrames; });
    CHECK(contains(tapped.relay->seen(), kSecretWords) == (seal != SealRule::kOn));
  }
}

TEST_CASE("relay: P8, a frame that was changed, repeated, left out, moved or made up ends it") {
  struct Attack {
    const char* name;
    std::function<void(Bytes&)> change;
  };
  const Attack attacks[] = {
      {"flips a bit of a payload", [](Bytes& b) { frame(b, 5)[500] ^= 4; }},
      {"flips a bit of a header", [](Bytes& b) { frame(b, 5)[8] ^= 1; }},
      {"flips a bit of a header's tag", [](Bytes& b) { frame(b, 5)[40] ^= 1; }},
      {"flips a bit of a payload's tag", [](Bytes& b) { frame(b, 6)[-1] ^= 128; }},
      {"repeats a frame",
       [](Bytes& b) {
         const Bytes again(frame(b, 5), frame(b, 6));
         b.insert(frame(b, 6), again.begin(), again.end());
       }},
      {"leaves a frame out", [](Bytes& b) { b.erase(frame(b, 5), frame(b, 6)); }},
      {"leaves the first frame out", [](Bytes& b) { b.erase(frame(b, 0), frame(b, 1)); }},
      {"swaps two frames",
       [](Bytes& b) { std::swap_ranges(frame(b, 5), frame(b, 6), frame(b, 6)); }},
      {"swaps two payloads",
       [](Bytes& b) { std::swap_ranges(frame(b, 5) + 56, frame(b, 6), frame(b, 6) + 56); }},
      {"puts noise between two frames",
       [](Bytes& b) { b.insert(frame(b, 5), kWire, std::uint8_t{0x5a}); }},
  };
  for (const SealRule seal : {SealRule::kOn, SealRule::kAuto})
    for (const Attack& attack : attacks) {
      CAPTURE(static_cast<int>(seal));
      CAPTURE(attack.name);
      Tapped tapped(seal, on_all(attack.change));
      check_given_up(tapped);
    }
}

// What one connection's bytes are worth on another: nothing, also of the same two in one epoch.
TEST_CASE("relay: P8, frames of another connection do not hold") {
  Bytes recorded;
  {
    Tapped tapped(SealRule::kOn, unchanged);
    tapped.send();
    tapped.receiver().wait([](const Told& t) { return t.frames.size() == kFrames; });
    const Bytes seen = tapped.relay->seen();
    recorded.assign(seen.end() - static_cast<std::ptrdiff_t>(kFrames * kWire), seen.end());
  }
  Tapped again(SealRule::kOn, on_all([&](Bytes& b) { b = recorded; }));
  check_given_up(again);
}

// Nobody in the middle can make two ends agree on less than both want.
TEST_CASE("relay: P8, ends that seal otherwise do not stand, and say so") {
  MeshGroup epoch(2);
  epoch.options.connect_timeout = std::chrono::milliseconds(1000);
  MeshOptions other = epoch.of(1);
  other.seal = SealRule::kOff;
  epoch.options.seal = SealRule::kOn;
  Node a(epoch.of(0), *epoch.listeners[0]), b(other, *epoch.listeners[1]);
  a.mesh->start();
  b.mesh->start();
  for (Node* node : {&a, &b}) {
    node->wait([](const Told& t) { return t.broken.has_value(); });
    CHECK(!node->told().connected);
    CHECK_MESSAGE(
        node->told().broken->second.find("[elastic].seal must be the same") != std::string::npos,
        node->told().broken->second);
  }
}

// That without keys it is not so is why they are there.
TEST_CASE("relay: with seal off whoever recomputes the checksum is believed") {
  constexpr std::size_t kBare = sizeof(FrameHeader) + kPayload;
  Tapped tapped(SealRule::kOff, [](Bytes& waiting) {
    if (waiting.size() < kFrames * kBare) return Bytes{};
    std::uint8_t* at = waiting.data() + 5 * kBare;
    FrameHeader header;
    std::memcpy(&header, at, sizeof header);
    at[sizeof header] ^= 1;
    header.checksum = hash64({at + sizeof header, kPayload}, checksum_seed(header));
    std::memcpy(at, &header, sizeof header);
    return std::exchange(waiting, {});
  });
  tapped.send();
  tapped.receiver().wait([](const Told& t) { return t.frames.size() == kFrames; });
  CHECK(*tapped.receiver().told().frames[5].second.payload != *payload_of(5));
}

}  // namespace starling::collectives
