#include "tools/starling/happening.h"

#include <unistd.h>

#include <cstdio>

#include "core/formats/checkpoint.h"

namespace starling::tools {
namespace {

using Kind = elastic::Observation::Kind;

constexpr std::uint64_t kDiverged = 10;                   // steps in a row
constexpr std::size_t kLossesMax = std::size_t{1} << 16;  // 1 MiB
constexpr std::size_t kEpochsMax = 1000;                  // more lines than a picture has room for

WorkerChange change_of(const std::string& what) {
  if (what == "joined") return WorkerChange::kJoined;
  if (what == "lost") return WorkerChange::kLost;
  if (what == "fenced") return WorkerChange::kFenced;
  return WorkerChange::kLeft;
}

EpochTimes times_of(const elastic::Observation& seen) {
  EpochTimes times;
  if (seen.resume_ms >= 0) times.resume_ms = seen.resume_ms;
  if (seen.plan.kind != PlanKind::kForced || seen.form_ms < 0) return times;
  times.detect_ms = seen.detect_ms;
  times.form_ms = seen.form_ms;
  times.pause = seen.pause;
  return times;
}

std::string epoch_label(const Plan& plan) {
  return to_string(plan.id) + " " + to_string(plan.kind) + ", " +
         std::to_string(plan.members.size()) + " workers";
}

std::string dropped_text(std::uint64_t steps) {
  return std::to_string(steps) +
         " words of steps were not told, as whoever writes and shows them is too slow";
}

Result<bool> write_step(EventWriter& events, const Progress& step, bool ledger) {
  STARLING_TRY(first, events.step(step.record, step.epoch, step.world, step.step_ms));
  if (ledger && !step.ledger.empty()) {
    STARLING_TRY(events.ledger(step.record.version, step.epoch, step.ledger));
  }
  return first;
}

}  // namespace

std::string notice_said(const std::string& name, const std::string& source,
                        const std::string& text) {
  return name + " has notice from " + source + (text.empty() ? "" : ": " + text);
}

Result<bool> write_event(EventWriter& events, const elastic::Observation& seen, bool ledger) {
  switch (seen.kind) {
    case Kind::kWorker:
      return events.worker(seen.who, change_of(seen.what), seen.name, seen.pid, seen.phase,
                           seen.reason);
    case Kind::kEpoch:
      return events.epoch(seen.plan, times_of(seen));
    case Kind::kStep:
      return write_step(events, seen.step, ledger);
    case Kind::kExposure:
      return events.exposure(seen.plan.id, seen.exposed, seen.copies_min, seen.wanted);
    case Kind::kNotice:
      return events.notice(seen.who, seen.name, seen.notice);
    case Kind::kLeader:
      return events.leader(seen.term, seen.coordinator, static_cast<std::uint64_t>(::getpid()),
                           seen.election_ms);
    case Kind::kWarning:
      return events.warning(seen.what);
    case Kind::kCheckpoint:
      return events.checkpoint(seen.version, checkpoint_folder(seen.what, seen.version));
    case Kind::kRestart:
      return events.restart(seen.version, seen.plan.id, seen.what);
    case Kind::kDropped:
      return events.dropped(seen.dropped, "whoever writes and shows them is too slow");
    case Kind::kGone:
      return events.warning(seen.end.reason);
    case Kind::kEnd:
      if (seen.end.exit_code != 0) return events.failed(seen.end.exit_code, seen.end.reason);
      return events.done(seen.end.version, seen.end.digest, seen.end.loss);
  }
  return false;
}

std::string done_text(const JobEnded& end) {
  char text[128];
  std::snprintf(text, sizeof text, "done: version %llu, loss %.6g, digest %s",
                static_cast<unsigned long long>(end.version), end.loss,
                to_string(end.digest).c_str());
  return text;
}

Happening happening_of(const elastic::Observation& seen) {
  Happening happening;
  switch (seen.kind) {
    case Kind::kWorker:
      if (seen.what != "joined") happening.said = seen.name + " " + seen.what;
      break;
    case Kind::kEpoch:
      happening.epoch = EpochMark{seen.plan.base, epoch_label(seen.plan)};
      happening.said = "epoch " + happening.epoch->label +
                       (seen.plan.cause.empty() ? "" : " (" + seen.plan.cause + ")");
      break;
    case Kind::kStep:
      happening.step =
          ProgressStep{seen.step.record.version, seen.step.record.loss, seen.step.record.tokens,
                       seen.step.epoch,          seen.step.world,       seen.step.record.skipped};
      break;
    case Kind::kCheckpoint:
      happening.checkpoint = seen.version;
      break;
    case Kind::kExposure:
    case Kind::kLeader:
      break;
    case Kind::kRestart:
      happening.said = restart_text(seen.version, seen.what);
      break;
    case Kind::kNotice:
      happening.said = notice_said(seen.name, seen.notice.source, seen.notice.text);
      break;
    case Kind::kWarning:
      happening.said = "warning: " + seen.what;
      break;
    case Kind::kDropped:
      happening.said = "warning: " + dropped_text(seen.dropped);
      break;
    case Kind::kGone:
      happening.gone = seen.end;
      break;
    case Kind::kEnd:
      happening.end = seen.end;
      break;
  }
  return happening;
}

std::string restart_text(Version version, const std::string& cause) {
  return "restart from the checkpoint of step " + std::to_string(version) + " (" + cause + ")";
}

void Spectator::show(const Happening& happening) {
  if (!happening.said.empty()) line_.say(happening.said);
  if (happening.epoch) {
    EpochMark mark = *happening.epoch;
    // A prepared plan has no base: it begins about where we are.
    if (mark.version == 0 && last_) mark.version = *last_ + 1;
    if (epochs_.size() < kEpochsMax) epochs_.push_back(std::move(mark));
  }
  // Every member reports every step; shown once.
  if (!happening.step || (last_ && happening.step->version <= *last_)) return;
  last_ = happening.step->version;
  world_ = happening.step->world;
  if (steps_++ % every_ == 0) losses_.push_back({*last_, happening.step->loss});
  if (losses_.size() == kLossesMax) {
    for (std::size_t i = 0; 2 * i < losses_.size(); ++i) losses_[i] = losses_[2 * i];
    losses_.resize((losses_.size() + 1) / 2);
    every_ *= 2;
  }
  line_.step(*happening.step);
}

std::string Spectator::diverged() const {
  const std::uint64_t skipped = line_.skipped_in_a_row();
  if (skipped == 0 || (skipped < kDiverged && skipped < steps_)) return "";
  return "diverged: the last " + std::to_string(skipped) +
         " steps were skipped, each with a micro-batch that is not finite (NaN or infinity); the "
         "model is that of version " +
         std::to_string(*last_ + 1 - skipped);
}

Result<> Spectator::save_curve(const std::string& path, const std::string& title) const {
  return write_loss_svg(path, title, losses_, epochs_);
}

}  // namespace starling::tools
