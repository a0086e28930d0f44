#pragma once
// The handshake of a bulk connection (docs/design.md, section 4): both ends show that they know the
// epoch's key, and make the keys that seal its frames. Pure: fixed-size messages in, fixed-size
// messages out.
//
//   dialler  -> acceptor  Hello   job, epoch, both ends; nonce a
//   acceptor -> dialler   Answer  nonce b; MAC(key, "acceptor", all of the above)
//   dialler  -> acceptor  Proof   MAC(key, "dialler", all of the above)
//   acceptor -> dialler   Admit   one byte: the connection carries the epoch now
// The roles differ in the MACs, so neither message can be sent back to its maker.
//
// Hello and Answer begin with the same 16 bytes in every version of the protocol. An acceptor that
// speaks another version, or seals frames otherwise, answers with these alone. The MACs cover them
// as well, so an attacker on the way cannot make two ends agree on less.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/aead.h"
#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/mac.h"
#include "core/job/sections.h"

namespace starling::collectives {

using HandshakeNonce = std::array<std::uint8_t, 32>;

// FrameSeal says how the frames of a connection are protected.
enum class FrameSeal : std::uint32_t {
  kPlain = 0,   // a checksum, against accidents
  kTagged = 1,  // a tag under a key of the connection, against changes on purpose
  kSecret = 2,  // encrypted, and tagged
};
// The seal that both ends find from the plan: `host` is where the acceptor is dialled.
FrameSeal seal_of(SealRule rule, const std::string& host);

// EpochSecret is what a member of an epoch knows.
struct EpochSecret {
  JobId job{};
  EpochId epoch;
  EpochKey key{};
  Rank self = 0;
  std::vector<Incarnation> members;  // index = rank, as below
  std::vector<FrameSeal> seals;      // of the connections that this rank accepts
  // A key pair that is fresh for the epoch and stays in this process, so that the epoch's key,
  // found out later, opens nothing that was recorded (kSecret).
  KeyExchange exchange;
};

struct Prefix {
  static constexpr std::uint64_t kMagic = 0x6b6c75622d6c7473;  // "stl-bulk"
  static constexpr std::uint32_t kVersion = 9;
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  FrameSeal seal = FrameSeal::kPlain;
};
static_assert(sizeof(Prefix) == 16);

struct Hello {
  Prefix prefix;
  JobId job{};
  EpochId epoch;
  Rank from = 0, to = 0;
  Incarnation from_who, to_who;
  HandshakeNonce nonce{};
  KeyExchange::Public exchange{};
};
static_assert(sizeof(Hello) == 16 + 16 + 16 + 8 + 32 + 32 + 32);

struct Answer {
  Prefix prefix;
  HandshakeNonce nonce{};
  KeyExchange::Public exchange{};
  Mac mac{};
};
static_assert(sizeof(Answer) == 16 + 32 + 32 + 32);

struct Proof {
  Mac mac{};
};
inline constexpr std::uint8_t kAdmit = 0xa5;

// ConnectionKeys seal the frames of one connection, from this end.
struct ConnectionKeys {
  FrameSeal seal = FrameSeal::kPlain;
  AeadKey send{}, receive{};
};

Hello make_hello(const EpochSecret& secret, Rank to);
// Why this end does not speak a prefix; empty if it does. `theirs` has the magic.
std::string prefix_fault(const Prefix& theirs, const Prefix& ours);
// The hello is for this epoch, this rank and this life, and comes from the member that it names,
// whose rank is below ours. Of its prefix only the magic and the version are looked at.
bool hello_fits(const EpochSecret& secret, const Hello& hello);
// The prefix that an acceptor sends first, whatever the hello's prefix said.
Prefix prefix_of(const EpochSecret& secret);
Answer make_answer(const EpochSecret& secret, const Hello& hello);
// nullopt: the acceptor does not know the key.
std::optional<Proof> make_proof(const EpochSecret& secret, const Hello& hello,
                                const Answer& answer);
bool proof_holds(const EpochSecret& secret, const Hello& hello, const Answer& answer,
                 const Proof& proof);
// Makes the keys after the proof. nullopt: the other end's half of the key exchange is invalid.
std::optional<ConnectionKeys> dialler_keys(const EpochSecret& secret, const Hello& hello,
                                           const Answer& answer);
std::optional<ConnectionKeys> acceptor_keys(const EpochSecret& secret, const Hello& hello,
                                            const Answer& answer);

}  // namespace starling::collectives
