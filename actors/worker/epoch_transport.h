#pragma once
// EpochTransport is one epoch's device transport at a worker, with its members' talk about it
// (collectives/transport_agreement.h). The data plane runs it, and the simulator; decides nothing.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/worker/transport_support.h"
#include "collectives/transport_agreement.h"
#include "core/base/ids.h"
#include "core/wire/messages.h"

namespace starling::actors {

// A transport's thread, or the clock of retry_in(), reports TransportReport.
struct TransportReport {
  enum class Kind : std::uint8_t { kReady, kFailed, kRound, kRetry, kLeft };
  EpochId epoch;
  std::uint32_t attempt = 0;
  Kind kind = Kind::kRetry;
  std::optional<Error> error;  // kFailed, and a round that failed
  bool revoked = false;        // kLeft only, which also comes for a transport whose epoch is over
};

// The data plane, which has memory, frames and events, makes these calls for EpochTransport, on its
// thread.
struct TransportCalls {
  // Fills in the device's memory and threads, and the limits of a transport.
  std::function<void(collectives::TransportOptions&)> prepare;
  std::function<void(std::uint32_t ms)> retry_in;  // then kRetry is reported
  std::function<void(Rank to, Bytes word)> send;
  std::function<void(collectives::DeviceTransport&, std::uint32_t attempt)> ready;
  // A transport was made; its end waits for this gate.
  std::function<void(std::uint32_t attempt, std::shared_ptr<collectives::Gate>)> made;
  std::function<void(std::uint32_t attempt, const Error& why)> lost;  // nothing uses it any more
  std::function<void(std::uint32_t attempt, Result<> ended)> round;
  std::function<void(bool on_device, const std::string& why)> told;  // for people
  std::function<void(Rank from, const collectives::TransportLeft& word)> others_left;
};

// Threads: the data plane's; `say` runs on any thread, and may after
// this object's end. Borrows the library, which must outlive it.
class EpochTransport {
 public:
  EpochTransport(const TransportSupport& transports, const Plan& plan, Rank self,
                 TransportCalls use, std::function<void(TransportReport)> say);
  ~EpochTransport();
  EpochTransport(const EpochTransport&) = delete;
  EpochTransport& operator=(const EpochTransport&) = delete;

  void begin();  // all connections of the epoch stand
  // Errors: kCorrupt; then nothing was done.
  Result<> on_word(Rank from, ByteView word);
  void on_said(TransportReport said);
  // No round follows in this epoch: another epoch's transport may be made.
  void give_up();
  std::uint32_t attempt() const { return transport_ ? attempt_ : 0; }  // 0: there is none

 private:
  void carry_out(collectives::TransportCommands commands);
  void carry_out(collectives::transport_command::Send& c);
  void carry_out(collectives::transport_command::MakeId& c);
  void carry_out(collectives::transport_command::Connect& c);
  void carry_out(collectives::transport_command::GiveUp& c);
  void carry_out(collectives::transport_command::RetryIn& c);
  void carry_out(collectives::transport_command::Say& c);
  void drop(const Error& why);
  bool for_good() const { return !library_->closed().empty(); }

  collectives::TransportLibrary* const library_;  // null: none
  const EpochId epoch_;
  const Rank self_;
  const std::uint32_t world_;
  const TransportCalls use_;
  const std::function<void(TransportReport)> say_;
  collectives::TransportAgreement talk_;
  std::unique_ptr<collectives::DeviceTransport> transport_;
  std::uint32_t attempt_ = 0;  // of transport_
  std::optional<Error> why_;   // transport_ must go, because of this
  bool over_ = false;
};

}  // namespace starling::actors
