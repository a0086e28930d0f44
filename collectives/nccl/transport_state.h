#pragma once
// The states of a transport over NCCL (transport.h). Its life:
//
//   EMPTY -> CREATING -> CREATED -> WARMING -> READY                 by the transport's thread
//     any of these -> REVOKING (-> AT_GATE) -> ABORTING -> GONE -> OVER
//   CREATING to ABORTING -> STUCK                                    by the watching thread
//
// REVOKING begins when the transport has failed or was given up; then no kernel of NCCL's runs here.
// ABORTING gives memory back that kernels of other GPUs of the machine may work on, and so a
// communicator that stood waits for its gate first (collectives/transport_teardown.h). GONE, the
// transport waits until its owner has destroyed it; OVER, its staging memory is given back.
//
// Beside it, the use that the owner may make of it:
//
//   NOT_YET -> QUIET <-> IN_USE                                      QUIET with READY
//     any of these -> CLOSED                                         failed, or STUCK
//
// The transport's thread may go on while the watching thread ends both: STUCK and CLOSED stay.

#include <atomic>
#include <cstdint>
#include <utility>

#include "core/base/check.h"

namespace starling::collectives::nccl {

// Threads: guarded by the transport's mutex; over() on any thread without it.
class TransportState {
 public:
  enum class Life : std::uint8_t {  // in the order of the drawing
    kEmpty,
    kCreating,
    kCreated,
    kWarming,
    kReady,
    kRevoking,
    kAtGate,
    kAborting,
    kGone,
    kOver,
    kStuck,
  };
  enum class Use : std::uint8_t { kNotYet, kQuiet, kInUse, kClosed };

  bool ending() const { return life_ >= Life::kRevoking; }
  bool gone() const { return life_ == Life::kGone || over(); }
  bool over() const { return life_ == Life::kOver; }
  bool stuck() const { return life_ == Life::kStuck; }
  bool closed() const { return use_ == Use::kClosed; }

  void enter(Life next) {
    if (stuck()) return;
    STARLING_CHECK(follows(next, life_));
    life_ = next;
  }
  void ready() {
    enter(Life::kReady);
    use(Use::kNotYet, Use::kQuiet);
  }
  void begin_round() { use(Use::kQuiet, Use::kInUse); }
  void end_round() { use(Use::kInUse, Use::kQuiet); }
  // Returns the use until now.
  Use close() { return std::exchange(use_, Use::kClosed); }

 private:
  static bool follows(Life next, Life now) {
    switch (next) {
      case Life::kEmpty:
        return false;
      case Life::kRevoking:
        return now <= Life::kReady;
      case Life::kAborting:
        return now == Life::kRevoking || now == Life::kAtGate;
      case Life::kStuck:
        return now >= Life::kCreating && now <= Life::kAborting;
      default:
        return static_cast<int>(next) == static_cast<int>(now) + 1;
    }
  }
  void use(Use from, Use to) {
    if (closed()) return;
    STARLING_CHECK(use_ == from);
    use_ = to;
  }

  std::atomic<Life> life_{Life::kEmpty};
  Use use_ = Use::kNotYet;
};

}  // namespace starling::collectives::nccl
