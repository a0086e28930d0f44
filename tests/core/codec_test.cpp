#include "core/wire/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/hash.h"
#include "core/wire/control.capnp.h"
#include "core/wire/limits.h"
#include "core/wire/seal.h"
#include "tests/core/wire_samples.h"

namespace starling {
namespace {

using samples::Maker;
using samples::same;

constexpr std::size_t kMessageKinds = std::variant_size_v<Message>;
constexpr std::size_t kEntryKinds = std::variant_size_v<Entry>;

// A found seed is tried again with STARLING_SEED=n.
std::uint64_t base_seed() {
  const char* given = std::getenv("STARLING_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 20260101;
}

// Goal: nothing of any message is lost or changed on the way.
// Method: random content for every kind; all fields compared, doubles by their bits.
TEST_CASE("codec: every message comes back as it was sent") {
  for (std::uint64_t seed = base_seed(); seed < base_seed() + 300; ++seed)
    for (std::size_t kind = 0; kind < kMessageKinds; ++kind) {
      CAPTURE(seed);
      CAPTURE(kind);
      const Envelope sent = Maker(seed).envelope(kind);
      const auto received = decode(encode(sent));
      REQUIRE_MESSAGE(received, received.error().text());
      CHECK(same(received.value(), sent));
    }
}

// What comes from a key that is not known is read by this alone.
TEST_CASE("codec: decode_enrol reads an Enrol and no other message") {
  for (std::size_t kind = 0; kind < kMessageKinds; ++kind) {
    CAPTURE(kind);
    const Envelope sent = Maker(base_seed()).envelope(kind);
    const Bytes bytes = encode(sent);
    const auto received = decode_enrol(bytes);
    CHECK(received.has_value() == std::holds_alternative<Enrol>(sent.body));
    if (received) CHECK(same(received.value(), sent));
    if (!received) CHECK(received.error().code() == Code::kStale);
    for (std::size_t cut = 0; cut < bytes.size(); cut += 7)
      CHECK(!decode_enrol({bytes.data(), cut}));
  }
  const std::string token(limits::kTokenBytes, 'x');
  const Bytes largest = encode(JobId{1}, {0, Nonce(5)}, {}, Enrol{token});
  CHECK(std::get<Enrol>(decode_enrol(largest).value().body).token == token);
  CHECK(largest.size() <= 16 * 1024);  // one frame: strangers' pieces are never joined
}

TEST_CASE("codec: every entry of the log comes back as it was written") {
  for (std::uint64_t seed = base_seed(); seed < base_seed() + 300; ++seed)
    for (std::size_t kind = 0; kind < kEntryKinds; ++kind) {
      CAPTURE(seed);
      CAPTURE(kind);
      const Entry written = Maker(seed).make<Entry>(kind);
      const auto read = decode_entry(encode_entry(written));
      REQUIRE_MESSAGE(read, read.error().text());
      CHECK(same(read.value(), written));
    }
}

TEST_CASE("codec: every state of the group comes back as it was written, or its damage is found") {
  for (std::uint64_t seed = base_seed(); seed < base_seed() + 300; ++seed) {
    CAPTURE(seed);
    const GroupState written = Maker(seed).group();
    Bytes bytes = encode_group(written);
    const auto read = decode_group(bytes);
    REQUIRE_MESSAGE(read, read.error().text());
    CHECK(same(read.value(), written));
    CHECK(encode_group(read.value()) == bytes);
    CHECK(!decode_entry(bytes));
    // Damage that the checksum does not see is an error or another state, never a crash.
    const auto payload = unseal(SealKind::kGroup, bytes);
    REQUIRE(payload);
    Bytes damaged(payload.value().begin(), payload.value().end());
    for (std::uint64_t k = 0; k < 20; ++k)
      damaged[mix64(seed, k) % damaged.size()] ^= static_cast<std::uint8_t>(1 << k % 8);
    (void)decode_group(seal(SealKind::kGroup, damaged));
    bytes[mix64(seed) % bytes.size()] ^= 4;
    CHECK(!decode_group(bytes));
  }
}

// Goal: what a process says at its end is sent whatever its length. Method: every message that has a
// reason, with one that is too long.
TEST_CASE("codec: a reason that is too long is cut, not a crash of its sender") {
  const std::string text(limits::kLineBytes + 100, 'x');
  const auto comes_back_cut = [](Message body, auto reason_of) {
    Envelope sent = Maker(3).envelope(0);
    sent.body = std::move(body);
    const auto received = decode(encode(sent));
    REQUIRE(received);
    CHECK(reason_of(received.value().body).size() == limits::kLineBytes);
  };
  comes_back_cut(Death{{1, 2}, WorkPhase::kApply, text},
                 [](const Message& m) { return std::get<Death>(m).reason; });
  comes_back_cut(Refused{text}, [](const Message& m) { return std::get<Refused>(m).reason; });
  comes_back_cut(Unloadable{7, text},
                 [](const Message& m) { return std::get<Unloadable>(m).reason; });
}

// Goal: what coordinators say of addresses is bounded. Method: the most that may be said, and bytes
// of it that say more.
TEST_CASE("codec: seats are bounded, and so are their places and addresses") {
  Seats seats;
  for (std::uint32_t i = 0; i < limits::kSeats; ++i)
    seats.seats.push_back({i, std::string(limits::kAddressBytes, 'a')});
  const Bytes bytes = encode({{}, {1, 2}, {}, seats});
  const auto received = decode(bytes);
  REQUIRE_MESSAGE(received, received.error().text());
  CHECK(std::get<Seats>(received.value().body) == seats);

  const auto refused = [](auto spoil, const std::string& why) {
    capnp::MallocMessageBuilder message;
    auto root = message.initRoot<schema::Envelope>();
    root.setJob({JobId{}.data(), JobId{}.size()});
    root.initFrom().setNonce(2);
    spoil(root.initBody());
    const auto words = capnp::messageToFlatArray(message);
    const auto payload = words.asBytes();
    const auto out = decode(seal(SealKind::kEnvelope, {payload.begin(), payload.size()}));
    REQUIRE(!out);
    CHECK(out.error().code() == Code::kCorrupt);
    CHECK(out.error().text().find(why) != std::string::npos);
  };
  refused([](auto body) { body.initSeats(limits::kSeats + 1); }, "expected at most 64");
  refused([](auto body) { body.initSeats(1)[0].setPlace(limits::kSeats); }, "out of range");
  refused([](auto body) { body.initSeats(1)[0].setAddress(std::string(289, 'a')); },
          "expected at most 288");
}

// ZeroMQ's small frames start anywhere.
TEST_CASE("codec: a message is read from any address") {
  const Envelope sent = Maker(1).envelope(1);
  const Bytes bytes = encode(sent);
  for (std::size_t offset = 0; offset < 16; ++offset) {
    Bytes shifted(offset);
    shifted.insert(shifted.end(), bytes.begin(), bytes.end());
    const auto received = decode(ByteView(shifted).subspan(offset));
    REQUIRE(received);
    CHECK(same(received.value(), sent));
  }
}

TEST_CASE("codec: the head tells for whom an envelope is") {
  const Envelope sent = Maker(2).envelope(0);
  const auto head = decode_head(encode(sent));
  REQUIRE(head);
  CHECK(head.value().job == sent.job);
  CHECK(same(head.value().from, sent.from));
  CHECK(same(head.value().to, sent.to));
}

// 4,096 members, 65,536 segments with 3 holders and a share of every micro-batch fit into one
// message.
TEST_CASE("codec: the largest plan travels") {
  Committed committed{Maker(3).plan(limits::kMembers, limits::kSegments)};
  committed.plan.shares.assign(limits::kMicroBatches, 4095);
  const Envelope sent{{}, {1, 2}, {3, 4}, committed};
  const Bytes bytes = encode(sent);
  CHECK(bytes.size() < limits::kMessageBytes);
  const auto received = decode(bytes);
  REQUIRE_MESSAGE(received, received.error().text());
  CHECK(same(received.value(), sent));
}

TEST_CASE("codec: lines for people are cut between characters, not refused") {
  Ended ended;
  ended.reason = std::string(limits::kLineBytes - 1, 'x') + "\xc3\xa9 and more";
  const auto received = decode(encode({{}, {1, 2}, {}, ended}));
  REQUIRE(received);
  CHECK(std::get<Ended>(received.value().body).reason == std::string(limits::kLineBytes - 1, 'x'));
}

// Goal: damage is found before it means something. Method: one flipped bit anywhere.
TEST_CASE("codec: a flipped bit is found") {
  const Bytes bytes = encode(Maker(4).envelope(1));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    CAPTURE(bit);
    CHECK(!decode(damaged));
  }
}

TEST_CASE("codec: a message cut short or made longer is refused") {
  const Bytes bytes = encode(Maker(5).envelope(1));
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK(!decode(ByteView(bytes).first(n)));
  Bytes longer = bytes;
  longer.resize(bytes.size() + 8);
  CHECK(!decode(longer));
}

TEST_CASE("codec: an entry is no envelope, and nothing is neither") {
  const auto entry = decode(encode_entry(Lost{{1, 2}, true}));
  REQUIRE(!entry);
  CHECK(entry.error().code() == Code::kCorrupt);
  CHECK(!decode({}));
  // A word of zeros reads as a struct of defaults; an all-default envelope must not pass.
  CHECK(!decode(seal(SealKind::kEnvelope, Bytes(8))));
  CHECK(!decode(seal(SealKind::kEnvelope, Bytes(16))));
  CHECK(!decode_entry(seal(SealKind::kEntry, Bytes(16))));
  // A segment count of 2^32-1 wraps to no segments.
  CHECK(!decode_entry(seal(SealKind::kEntry, Bytes(8, 0xff))));
}

TEST_CASE("codec: another version of the protocol is stale, not damaged") {
  Bytes bytes = encode(Maker(6).envelope(0));
  bytes[4] = 2;
  const auto received = decode(bytes);
  REQUIRE(!received);
  CHECK(received.error().code() == Code::kStale);
}

// Each row is a plan that our own encoder would refuse to build; plan_fault is what the decoder
// asks.
TEST_CASE("codec: a plan must agree with itself") {
  struct Case {
    const char* name;
    void (*spoil)(Plan&);
  };
  const Case cases[] = {
      {"holder is no member", [](Plan& p) { p.holders[0] = {3}; }},
      {"more holders than members",
       [](Plan& p) {
         p.holders[0] = {0, 1, 2, 0};
       }},
      {"source is no member",
       [](Plan& p) {
         p.moves = {{{0, 1}, 3, 0, 0}};
       }},
      {"target is no member",
       [](Plan& p) {
         p.moves = {{{0, 1}, 0, 3, 0}};
       }},
      {"moved segment is not there",
       [](Plan& p) {
         p.moves = {{{1, 8}, 0, 1, 0}};
       }},
      {"moved range wraps",
       [](Plan& p) {
         p.moves = {{{8, 0xffffffffu}, 0, 1, 0}};
       }},
      {"share of no member",
       [](Plan& p) {
         p.shares = {0, 3};
       }},
      {"too many members", [](Plan& p) { p.members.resize(limits::kMembers + 1); }},
      {"too many segments", [](Plan& p) { p.holders.resize(limits::kSegments + 1); }},
      {"too many micro-batches", [](Plan& p) { p.shares.resize(limits::kMicroBatches + 1); }},
  };
  Plan good = Maker(7).plan(3, 8);
  CHECK(plan_fault(good) == "");
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Plan plan = good;
    c.spoil(plan);
    CHECK(plan_fault(plan) != "");
  }
}

// Goal: no bytes at all can crash or hang the decoder, also when the checksum holds.
// Method: valid payloads with random words overwritten, bits flipped, pieces cut, sealed again.
TEST_CASE("codec: mutated bytes never crash") {
  Maker random(base_seed());
  std::size_t accepted = 0;
  for (int i = 0; i < 100000; ++i) {
    const bool envelope = random.below(3) != 0;
    const SealKind kind = envelope ? SealKind::kEnvelope : SealKind::kEntry;
    const Bytes sealed = envelope ? encode(random.envelope(random.below(kMessageKinds)))
                                  : encode_entry(random.make<Entry>(random.below(kEntryKinds)));
    Bytes payload(sealed.begin() + kSealBytes, sealed.end());
    for (auto n = 1 + random.below(4); n > 0; --n) {
      const auto at = random.below(payload.size());
      switch (random.below(4)) {
        case 0:
          payload[at] ^= static_cast<std::uint8_t>(1u << random.below(8));
          break;
        case 1:
          payload[at] = static_cast<std::uint8_t>(random.bits());
          break;
        case 2:
          payload[at / 8 * 8] = static_cast<std::uint8_t>(random.below(8));
          break;
        default:
          payload.resize(8 + at / 8 * 8);
          break;
      }
    }
    const Bytes again = seal(kind, payload);
    if (envelope) {
      const auto out = decode(again);
      // What is accepted is within the limits: it can be encoded again, which checks them.
      if (out) accepted += encode(out.value()).empty() ? 0u : 1u;
    } else {
      const auto out = decode_entry(again);
      if (out) accepted += encode_entry(out.value()).empty() ? 0u : 1u;
    }
  }
  CHECK(accepted > 1000);  // the mutations are mild enough to get past the first checks
  CHECK(accepted < 100000);
}

// ---- Bytes of older builds ----------------------------------------------------------------------

Bytes read_golden(const std::string& name) {
  std::ifstream file("tests/core/golden/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// One value of every kind, as this build writes it. When a struct gets a field, the old file is
// kept under another name (v1-message-0-before-pid.bin) and a new one is written.
std::vector<std::pair<std::string, Bytes>> golden_messages() {
  std::vector<std::pair<std::string, Bytes>> all;
  for (std::size_t kind = 0; kind < kMessageKinds; ++kind)
    all.emplace_back("v1-message-" + std::to_string(kind) + ".bin",
                     encode(Maker(1000 + kind).envelope(kind)));
  for (std::size_t kind = 0; kind < kEntryKinds; ++kind)
    all.emplace_back("v1-entry-" + std::to_string(kind) + ".bin",
                     encode_entry(Maker(2000 + kind).make<Entry>(kind)));
  return all;
}

// Goal: a change of the schemas that breaks old logs or running jobs is noticed.
// Method: all files of the folder must be read; those of golden_messages() are also what this build
// writes, byte for byte.
TEST_CASE("codec: messages of older builds are still read, and ours are the same") {
  if (std::getenv("STARLING_WRITE_GOLDEN") != nullptr)
    for (const auto& [name, bytes] : golden_messages())
      std::ofstream("tests/core/golden/" + name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
  for (const auto& sample : golden_messages()) {
    const std::string& name = sample.first;
    const Bytes& bytes = sample.second;
    CAPTURE(name);
    const Bytes golden = read_golden(name);
    REQUIRE(!golden.empty());
    CHECK(golden == bytes);
  }
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator("tests/core/golden")) {
    const std::string name = file.path().filename().string();
    CAPTURE(name);
    ++files;
    if (name.find("-message-") != std::string::npos)
      CHECK(decode(read_golden(name)));
    else
      CHECK(decode_entry(read_golden(name)));
  }
  CHECK(files >= golden_messages().size());
}

}  // namespace
}  // namespace starling
