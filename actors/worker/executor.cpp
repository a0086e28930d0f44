#include "actors/worker/executor.h"

#include <algorithm>
#include <utility>

#include "actors/guard/status.h"
#include "core/base/check.h"
#include "core/base/exit.h"

namespace starling::actors {

using namespace elastic::worker_command;
namespace event = elastic::worker_event;
namespace epoch_event = collectives::epoch_event;

OpenEpoch* Executor::find(const EpochId& epoch) const {
  const auto it = epochs_.find(epoch);
  return it == epochs_.end() ? nullptr : it->second;
}

OpenEpoch& Executor::of(const EpochId& epoch) const {
  OpenEpoch* const found = find(epoch);
  STARLING_CHECK_MSG(found, "an order for epoch " << to_string(epoch) << ", which is not open");
  return *found;
}

// ---- Ends -------------------------------------------------------------------------------------

// The running order may still use an epoch: its owner closes it later.
void Executor::halt(int status, const std::string& reason) {
  if (std::exchange(halted_, true)) return;
  for (const auto& [id, epoch] : epochs_) epoch->given_up = true;
  owner_.halted(status, reason);
}

// The copies of other workers are whole: a new life is given theirs.
void Executor::damaged(const Damage& damage) {
  halt(kDamagedStatus, of_segment(damage.what, damage.segment) + " changed in memory");
}

std::string Executor::of_segment(const char* what, SegmentId segment) const {
  const auto& tensor = layout_.tensors()[layout_.tensor_of(layout_.first_block(segment))].spec;
  return name_ + ": " + what + " of segment " + std::to_string(segment) + " (" + tensor.name + ")";
}

void Executor::give_up(OpenEpoch& epoch, Rank peer, const std::string& why, LinkFault fault) {
  epoch.given_up = true;
  owner_.gave_up(epoch, peer, why);
  owner_.tell(event::Broken{epoch.id(), peer, fault});
}

// ---- A step -----------------------------------------------------------------------------------

void Executor::execute(const SayReady& o) {
  of(o.epoch).frames.send_ready();
}

void Executor::execute(const SetVersion& o) {
  OpenEpoch& epoch = of(o.epoch);
  take(epoch, epoch.frames.set_version(o.version));
}

void Executor::execute(const OpenStep& o) {
  OpenEpoch& epoch = of(o.epoch);
  epoch.sent.reset();
  epoch.frames.open_step(o.holders, o.contributors, o.attempt);
}

void Executor::execute(const StartReduce& o) {
  OpenEpoch& epoch = of(o.epoch);
  STARLING_CHECK(epoch.frames.holders());
  epoch.sent.emplace(layout_.buckets());
  epoch.owned = o.owned;
  const collectives::Sums sums = memory_.begin_reduce(o.micro_batches);
  epoch.sender.hold();
  take(epoch, epoch.frames.begin_reduce(o.version, sums, memory_.complete_lanes(o.version)));
  if (contribute(epoch, o.version)) epoch.sender.flush();
}

void Executor::part_added() {
  for (const auto& [id, epoch] : epochs_)
    if (epoch->sent && !contribute(*epoch, epoch->frames.version())) return;
}

// Sends the buckets of the own sums that are final and not sent yet.
// False: the sums differ from what was added, and this life is over.
bool Executor::contribute(OpenEpoch& epoch, Version version) {
  for (std::uint32_t b = 0; b < layout_.buckets() && !epoch.given_up; ++b) {
    const SegmentRange segments = layout_.bucket(b);
    if ((*epoch.sent)[b] || !memory_.added(segments)) continue;
    if (epoch.frames.contributes())
      if (const auto damage = memory_.check_sums(segments, version, epoch.frames.on_device())) {
        damaged(*damage);
        return false;
      }
    (*epoch.sent)[b] = true;
    take(epoch, epoch.frames.contribute(b));
  }
  return !halted_;
}

// Sums travel during the compare; without the rows no owner has all that a vote needs.
void Executor::execute(const EndShare& o) {
  OpenEpoch& epoch = of(o.epoch);
  STARLING_CHECK(epoch.sent);
  owner_.at(WorkPhase::kReduce);
  owner_.mark(StepMark::kComputed);
  epoch.sender.hold();
  if (!contribute(epoch, o.version)) return;
  epoch.sender.flush();
  memory_.compare_parameters(o.version, [this, o](const std::optional<Damage>& damage) {
    if (halted_) return;
    if (damage) return damaged(*damage);
    end_share(o);
  });
}

void Executor::end_share(const EndShare& o) {
  OpenEpoch* const epoch = find(o.epoch);
  if (!epoch || epoch->given_up || epoch->frames.version() != o.version) return;
  owner_.mark(StepMark::kChecked);
  if (std::ranges::find(*epoch->sent, false) != epoch->sent->end())
    return halt(kExitInternal, name_ + ": the sums lack micro-batches of the share of step " +
                                   std::to_string(o.version));
  epoch->sender.hold();
  if (!o.rows.empty()) epoch->frames.send_ledger(o.version, o.rows);
  take(*epoch, epoch->frames.end_share(memory_.side_entries()));
  epoch->sender.flush();
}

void Executor::execute(const Compare& o) {
  memory_.compare_parameters(o.version, [this, o](const std::optional<Damage>& damage) {
    if (halted_) return;
    if (damage) return damaged(*damage);
    owner_.tell(event::Compared{o.epoch, o.version});
  });
}

// Returns nothing if this life is over.
std::optional<Measured> Executor::measure(Version version, const Measure& owned) {
  auto measured = memory_.measure(owned.segments, version, owned.digest);
  if (!measured.damage) return measured;
  damaged(*measured.damage);
  return std::nullopt;
}

void Executor::execute(const ComputeNorm& o) {
  const auto measured = measure(o.version, o.owned);
  if (!measured) return;
  // The total was the sum of its parts when it was accepted, so it has changed in memory.
  if (measured->wrong_total) return damaged({"the total", *measured->wrong_total});
  owner_.tell(event::Reduced{o.epoch, o.version, measured->norm, measured->digest});
}

void Executor::execute(const SendVote& o) {
  owner_.at(WorkPhase::kVote);
  of(o.epoch).frames.send_vote(o.vote);
}

void Executor::execute(const Apply& o) {
  if (const auto damage = memory_.apply(o.record, o.peak_rate)) return damaged(*damage);
  owner_.mark(StepMark::kApplied);
}

void Executor::execute(const ClearAccumulators&) {
  owner_.at(WorkPhase::kApply);
  owner_.mark(StepMark::kPassed);
  memory_.clear_accumulators();
}

void Executor::execute(const DropTotals&) {
  memory_.drop_totals();
}

void Executor::execute(const StartGather& o) {
  OpenEpoch& epoch = of(o.epoch);
  owner_.at(WorkPhase::kGather);
  owner_.mark(StepMark::kTold);
  if (const auto damage = memory_.begin_gather(o.version)) return damaged(*damage);
  take(epoch, epoch.frames.gather(o.version, o.holders, o.record));
}

void Executor::execute(const SendMove& o) {
  std::vector<SegmentId> moved;
  for (const SegmentId s : o.segments) moved.push_back(s);
  if (const auto damage = memory_.check_state(moved)) return damaged(*damage);
  of(o.epoch).frames.send_move(o.target, o.version, o.record, o.segments,
                               share(memory_.state_bytes(o.segments)));
}

void Executor::execute(const ComputeDigest& o) {
  owner_.at(WorkPhase::kEnd);
  if (const auto damage = memory_.check_state(o.segments)) return damaged(*damage);
  memory_.compare_parameters(o.version, [this, o](const std::optional<Damage>& damage) {
    if (halted_) return;
    if (damage) return damaged(*damage);
    owner_.tell(event::DigestReady{o.epoch, o.version, memory_.state_part(o.segments),
                                   memory_.parameters_part(o.segments)});
  });
}

// ---- Frames and device transports -------------------------------------------------------------

void Executor::on_frame(OpenEpoch& epoch, Rank from, Frame frame) {
  if (!epoch.given_up) take(epoch, epoch.frames.on_frame(from, std::move(frame)));
}

void Executor::on_transport_ready(OpenEpoch& epoch, collectives::DeviceTransport& transport,
                                  std::uint32_t attempt) {
  epoch.frames.use(transport, attempt);
  owner_.tell(event::TransportReady{epoch.id(), attempt});
}

void Executor::on_transport_lost(OpenEpoch& epoch, std::uint32_t attempt, Error why) {
  owner_.tell(event::TransportLost{epoch.id(), attempt});
  take(epoch, epoch.frames.lose_transport(attempt, std::move(why)));
}

void Executor::on_round(OpenEpoch& epoch, std::uint32_t attempt, Result<> ended) {
  take(epoch, epoch.frames.on_round(attempt, std::move(ended)));
}

void Executor::take(OpenEpoch& epoch, collectives::EpochEvents events) {
  for (auto& e : events) {
    if (epoch.given_up) return;
    std::visit([&](auto& one) { take(epoch, one); }, e);
  }
}

void Executor::take(OpenEpoch& epoch, const epoch_event::Reduced& e) {
  if (auto taken = memory_.take_side_entries(); !taken)
    return give_up(epoch, epoch.frames.self(), taken.error().text());
  owner_.mark(StepMark::kReduced);
  const auto measured = measure(e.version, epoch.owned);
  if (!measured) return;
  // This life goes on: the sums are whole at their makers (R2), and are added up anew.
  if (const auto wrong = measured->wrong_total)
    return give_up(
        epoch, epoch.frames.on_device() ? kNoRank : (*epoch.frames.holders())[*wrong].front(),
        "the total of segment " + std::to_string(*wrong) + " is not the sum of its parts");
  owner_.tell(event::Reduced{epoch.id(), e.version, measured->norm, measured->digest});
}

void Executor::take(OpenEpoch& epoch, const epoch_event::Gathered& e) {
  owner_.gathered(epoch);
  owner_.at(WorkPhase::kCompute);  // compute had begun already, except at the last version
  owner_.tell(e);
}

// The owner's copy is the one that all others have, so this worker ends whichever copy is wrong.
void Executor::take(OpenEpoch&, const epoch_event::CopyDiffers& e) {
  halt(kDamagedStatus, of_segment("the copy", e.segment) + " is not as its owner's");
}

void Executor::take(OpenEpoch& epoch, const epoch_event::MoveArrived& e) {
  if (auto taken = memory_.take_move(e.segments, e.version, e.states); !taken)
    return give_up(epoch, e.from, taken.error().text());
  owner_.tell(event::MovedIn{epoch.id(), e.version, e.segments});
}

void Executor::take(OpenEpoch& epoch, const epoch_event::Wrong& e) {
  give_up(epoch, e.peer, e.error.text());
}

}  // namespace starling::actors
