#pragma once
// Leaving takes down the device transports of all of a worker's epochs: the ends of other members'
// kernels (collectives/transport_teardown.h), and the gates that wait for them. For data_plane.cpp.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "actors/worker/epoch_transport.h"
#include "collectives/transport_teardown.h"
#include "core/base/mutex.h"
#include "core/wire/messages.h"

namespace starling::actors {

// Transports report to TransportReports, as their threads may outlive the data plane that hears them.
// Threads: any.
class TransportReports {
 public:
  explicit TransportReports(std::function<void(TransportReport)> hear) : hear_(std::move(hear)) {}
  void say(TransportReport said) {
    const MutexLock lock(mutex_);
    if (hear_) hear_(std::move(said));
  }
  void close() {
    const MutexLock lock(mutex_);
    hear_ = nullptr;
  }

 private:
  Mutex mutex_;
  std::function<void(TransportReport)> hear_ STARLING_GUARDED_BY(mutex_);
};

// Threads: the data plane's.
class Leaving {
 public:
  using Send = std::function<void(const EpochId& over, Rank to, Bytes word)>;
  explicit Leaving(Send send) : send_(std::move(send)) {}

  void made(const Plan& plan, std::uint32_t attempt, std::shared_ptr<collectives::Gate> gate) {
    // Only gates_ holds the gate of a transport that is gone: no transport waits for it.
    std::erase_if(gates_, [](const auto& entry) { return entry.second.use_count() == 1; });
    gates_[{plan.id, attempt}] = std::move(gate);
    ends_.made({plan.id, attempt}, lives_of(plan));
  }
  void left(const TransportReport& said) {
    carry_out(ends_.left({said.epoch, said.attempt}, said.revoked));
  }
  void stands(const Plan& plan, Rank self) {
    carry_out(ends_.stands(plan.id, lives_of(plan), self));
  }
  void over(const EpochId& epoch) { ends_.over(epoch); }
  void others_left(Incarnation from, const collectives::TransportLeft& word) {
    carry_out(ends_.on_word(from, word));
  }
  // This process ends: no transport has to wait for another member any more.
  void open_all() {
    for (const auto& [transport, gate] : gates_) gate->open();
    gates_.clear();
  }

 private:
  static collectives::TransportTeardown::Members lives_of(const Plan& plan) {
    collectives::TransportTeardown::Members lives;
    for (const Member& m : plan.members) lives.push_back(m.who);
    return lives;
  }
  void carry_out(const collectives::TeardownCommands& commands) {
    for (const auto& command : commands) {
      if (const auto* send = std::get_if<collectives::teardown::Send>(&command)) {
        send_(send->epoch, send->to, collectives::encode_transport_message(send->word));
        continue;
      }
      const auto gate = gates_.find(std::get<collectives::teardown::Open>(command).transport);
      if (gate == gates_.end()) continue;
      gate->second->open();
      gates_.erase(gate);
    }
  }

  collectives::TransportTeardown ends_;
  const Send send_;
  std::map<collectives::TransportId, std::shared_ptr<collectives::Gate>> gates_;
};

}  // namespace starling::actors
