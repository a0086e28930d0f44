#pragma once
// TransportAgreement brings the members of an epoch to a device transport: rank 0 makes an id and
// offers it, the others connect with it or say why not. A pure machine: events in,
// commands out. No step depends on these messages: a member whose transport is ready says so
// with its votes (R17), and until all have, bytes go over the epoch's connections.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace starling::collectives {

// Rank 0 to all others.
struct TransportOffer {
  std::uint32_t attempt = 0;
  std::string library;  // TransportLibrary::name()
  Bytes id;
};
// A rank's answer to rank 0 that it cannot connect.
struct TransportRefusal {
  std::uint32_t attempt = 0;
  bool for_good = false;  // no other attempt can succeed in this epoch
  std::string reason;     // for people
};
// Sent to those that were members of a transport that is over, over the connections of any later epoch
// (collectives/transport_teardown.h).
struct TransportLeft {
  EpochId epoch;
  std::uint32_t attempt = 0;
  bool revoked = false;  // its kernels were stopped at the sender; false: that could not be seen to
};
using TransportMessage = std::variant<TransportOffer, TransportRefusal, TransportLeft>;

Bytes encode_transport_message(const TransportMessage& word);
// Errors: kCorrupt. Bounded: ids of at most 1 KiB, texts of at most 256 bytes.
Result<TransportMessage> decode_transport_message(ByteView bytes);

namespace transport_command {
struct Send {
  Rank to = 0;
  TransportMessage word;
};
struct MakeId {  // rank 0; the answer is id_made() or failed()
  std::uint32_t attempt = 0;
};
struct Connect {  // with this id, after the transport of any older attempt has been given up
  std::uint32_t attempt = 0;
  Bytes id;
};
struct GiveUp {};  // the transport that there is, ready or not
struct RetryIn {   // then retry(), once
  std::uint32_t ms = 0;
};
struct Say {  // for people: which way bytes go, and why
  bool on_device = false;
  std::string why;
};
}  // namespace transport_command

using TransportCommand =
    std::variant<transport_command::Send, transport_command::MakeId, transport_command::Connect,
                 transport_command::GiveUp, transport_command::RetryIn, transport_command::Say>;
using TransportCommands = std::vector<TransportCommand>;

// TransportAgreement covers one epoch at one member. Threads: one at a time.
class TransportAgreement {
 public:
  // `library`: of this process; empty: none, and `reason` says why.
  TransportAgreement(Rank self, std::uint32_t world, std::string library, std::string reason);

  TransportCommands begin();  // all connections of the epoch stand
  TransportCommands id_made(std::uint32_t attempt, Bytes id);
  TransportCommands ready(std::uint32_t attempt);
  // The transport failed here, in the making or later. `for_good`: no other attempt can succeed here.
  TransportCommands failed(std::uint32_t attempt, const std::string& reason, bool for_good = false);
  // Takes an offer or a refusal. Errors: kCorrupt, a word that this rank cannot have said.
  Result<TransportCommands> on_word(Rank from, const TransportMessage& word);
  TransportCommands retry();

  std::uint32_t attempt() const { return attempt_; }

 private:
  static constexpr std::uint32_t kRetryMs[] = {1'000, 4'000, 16'000};

  TransportCommands next_attempt();
  TransportCommands lost(bool for_good, const std::string& reason);

  const Rank self_;
  const std::uint32_t world_;
  const std::string library_, reason_;
  std::uint32_t attempt_ = 0;
  bool over_ = false;     // no other attempt in this epoch
  bool waiting_ = false;  // for retry()
};

}  // namespace starling::collectives
