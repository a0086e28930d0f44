#pragma once
// The handshake of a bulk connection (docs/design.md, section 4): both ends show that they know the
// epoch's key. Pure: fixed-size messages in, fixed-size messages out.
//
//   dialler  -> acceptor  Hello   who I am, whom I call, in which epoch of which job; nonce a
//   acceptor -> dialler   Answer  nonce b; MAC(key, "acceptor", all of the above)
//   dialler  -> acceptor  Proof   MAC(key, "dialler", all of the above)
//   acceptor -> dialler   Admit   one byte: the connection carries the epoch now
// The roles differ in the MACs, so neither message can be sent back to its maker.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/mac.h"

namespace starling::collectives {

using Nonce = std::array<std::uint8_t, 32>;

// What a member of an epoch knows.
struct EpochSecret {
  JobId job{};
  EpochId epoch;
  EpochKey key{};
  Rank self = 0;
  std::vector<Incarnation> members;  // index = rank
};

struct Hello {
  static constexpr std::uint64_t kMagic = 0x312d6d672d6c7473;  // "stl-gm-1"
  std::uint64_t magic = kMagic;
  JobId job{};
  EpochId epoch;
  Rank from = 0, to = 0;
  Incarnation from_who, to_who;
  Nonce nonce{};
};
static_assert(sizeof(Hello) == 8 + 16 + 16 + 8 + 32 + 32);

struct Answer {
  Nonce nonce{};
  Mac mac{};
};
static_assert(sizeof(Answer) == 64);

struct Proof {
  Mac mac{};
};
inline constexpr std::uint8_t kAdmit = 0xa5;

Hello make_hello(const EpochSecret& secret, Rank to);
// The hello is for this epoch, this rank and this life, and comes from the member that it names,
// whose rank is below ours.
bool hello_fits(const EpochSecret& secret, const Hello& hello);
Answer make_answer(const EpochSecret& secret, const Hello& hello);
// nullopt: the acceptor does not know the key.
std::optional<Proof> make_proof(const EpochSecret& secret, const Hello& hello,
                                const Answer& answer);
bool proof_holds(const EpochSecret& secret, const Hello& hello, const Answer& answer,
                 const Proof& proof);

}  // namespace starling::collectives
