#pragma once
// Actors of one process send each other these messages: immutable values, cheap to copy.

#include <caf/atom.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "actors/gateway/gateway.h"
#include "actors/worker/orders.h"
#include "core/data/batch.h"
#include "elastic/membership/coordinator.h"

namespace starling::actors {

class IdentityDesk;

// -- to a data loader, and back
struct LoadAhead {  // micro-batches that will be asked for; the oldest kept ones may be dropped
  Version version = 0;
  std::vector<MicroBatch> micro_batches;
};
struct LoadNow {
  Version version = 0;
  MicroBatch micro_batch = 0;
  std::uint8_t scale = 0;  // ComputeOrder's, handed on
  bool again = false;      // ComputeOrder's: one of ComputeOrder::again
  std::chrono::steady_clock::time_point asked{};
};
struct Loaded {  // answer to LoadNow, to its sender
  Version version = 0;
  MicroBatch micro_batch = 0;
  std::uint8_t scale = 0;
  bool again = false;
  std::chrono::steady_clock::time_point asked{};  // LoadNow's
  std::shared_ptr<const Batch> batch;             // null: `error` says why
  std::string error;
  Code error_code = Code::kBadInput;
};

// -- to a worker
struct MicroBatchComputed {
  Version version = 0;
  LedgerRow row;
  std::chrono::nanoseconds took{};  // from the beginning of the pass until its sums were added
  bool again = false;               // of ComputeOrder::again: nothing was added
  bool begun = true;                // false: another order came before it
  std::uint32_t skipped = 0;  // local steps that were not made, as their gradients were not finite
  std::string error;          // not empty: the data or the model failed
  Code error_code = Code::kBadInput;
};
// starling::Notice: a leave or a hint, from a signal, a cloud (actors/notices) or the application.

struct DataHashed {  // all data have been read; zeros: they have to be read again
  Digest data{};
};

// -- to a coordinator
struct KeyRefused {  // by its gateway; the line says which and from where
  std::string line;
};
struct KeysChanged {  // from now on these keys are let in, and no others
  AllowList allowed;
};

// -- to the actors that follow a worker or a coordinator
struct WorkerOver {  // a worker's last message
  int code = 0;
  bool fenced = false;
  std::string reason;
  bool told = false;  // the coordinators ended it: they know the reason already
  bool left = false;  // as this worker had announced
  bool job_done = false;
  Digest digest{};
  double loss = 0;
  // The trained model, flat in the job's layout, whose digest equals that of the job's
  // end, and that digest; null: this worker does not have it, and `why_not` says why.
  std::shared_ptr<const std::vector<float>> parameters;
  Digest parameters_digest{};
  std::string why_not;
};
struct EndRun {  // to a coordinator: end the job's run in order, as this signal says
  std::uint8_t signal = 0;
  std::string reason;
};
struct CoordinatorOver {  // a coordinator's last message, if it ends and the job does not
  int code = 0;
  std::string reason;
};

// -- from a coordinator's journal to itself
struct LogSaved {
  std::string error;  // empty: the order is on the disk
};

// A coordinator sends its followers Observed: `seen->event`.
using Observed = std::shared_ptr<const elastic::coordinator_command::Tell>;

using tick_atom = caf::atom_constant<caf::atom("tick")>;
using start_atom = caf::atom_constant<caf::atom("start")>;
using stop_atom = caf::atom_constant<caf::atom("stop")>;
using rest_atom = caf::atom_constant<caf::atom("rest")>;
using ask_checkpoint_atom = caf::atom_constant<caf::atom("askcheckp")>;
using hand_over_atom = caf::atom_constant<caf::atom("handover")>;
// Sent to a coordinator, with the follower as caf::actor.
using follow_atom = caf::atom_constant<caf::atom("follow")>;
inline constexpr tick_atom tick_atom_v{};
inline constexpr start_atom start_atom_v{};
inline constexpr stop_atom stop_atom_v{};
inline constexpr rest_atom rest_atom_v{};
inline constexpr ask_checkpoint_atom ask_checkpoint_atom_v{};
inline constexpr follow_atom follow_atom_v{};
inline constexpr hand_over_atom hand_over_atom_v{};

}  // namespace starling::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::Arrival)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<starling::actors::Gateway>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<starling::actors::IdentityDesk>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::DataPlaneEvent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::ComputeOrder)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::EvaluateOrder)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::EvaluationDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::KeyRefused)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::KeysChanged)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::LoadAhead)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::LoadNow)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::Loaded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::MicroBatchComputed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::DataHashed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::Notice)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::WorkerOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::LogSaved)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::Observed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::EndRun)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::CoordinatorOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::ShardOrder)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::ShardDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::LoadOrder)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::LoadDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::elastic::coordinator_command::StoreCheckpoint)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::elastic::coordinator_command::TidyCheckpoints)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::elastic::coordinator_event::Stored)
