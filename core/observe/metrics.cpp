#include "core/observe/metrics.h"

#include <algorithm>
#include <chrono>
#include <variant>

#include "core/base/build.h"
#include "core/base/overloaded.h"

namespace starling {

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Metrics::Metrics(const Job& job)
    : name_(job.name),
      steps_(job.steps),
      checkpoint_every_(job.checkpoint.on() && job.checkpoint.every < kCheckpointsByTime
                            ? job.checkpoint.every
                            : 0),
      checkpoint_every_seconds_(job.checkpoint.on() ? job.checkpoint.every_seconds : 0),
      samples_of_step_(std::uint64_t{job.micro_batches} * job.micro_batch_sequences) {}

void Metrics::on(const Event& event) {
  const std::lock_guard lock(mutex_);
  std::visit(Overloaded{
                 [&](const event::Started& e) {
                   begun_ = unix_time();
                   from_ = e.from;
                   next_step_ = from_;
                 },
                 [&](const event::Continued&) { begun_ = unix_time(); },
                 [&](const event::Dropped& e) { dropped_ += e.lines; },
                 [&](const event::WorkerChanged& e) { add(e); },
                 [&](const event::Preparing&) {},
                 [&](const event::AdminActed&) {},
                 [&](const event::CoordinatorsChanged&) {},
                 [&](const event::EpochFormed& e) { add(e); },
                 [&](const event::TransportChosen&) {},
                 [&](const event::StepPassed& e) { add(e); },
                 [&](const event::LedgerPassed&) {},
                 [&](const event::LeaderElected& e) {
                   ++elections_;
                   term_ = e.term;
                 },
                 [&](const event::Exposed& e) {
                   exposed_ = e.segments;
                   copies_min_ = e.copies_min;
                   copies_wanted_ = e.wanted;
                 },
                 [&](const event::CheckpointWritten& e) {
                   ++checkpoints_;
                   checkpoint_step_ = e.version;
                   checkpoint_at_ = unix_time();
                 },
                 [&](const event::Restarted& e) {
                   ++restarts_;
                   next_step_ = e.version;
                 },
                 [&](const event::NoticeGiven& e) {
                   ++notices_;
                   leaves_ += e.leave ? 1 : 0;
                 },
                 [&](const event::Tainted&) { ++tainted_; },
                 [&](const event::Mismatch&) { ++mismatches_; },
                 [&](const event::Warning&) { ++warnings_; },
                 [&](const event::Done&) { done_ = true; },
                 [&](const event::Ended&) { ended_ = true; },
                 [&](const event::Failed&) { failed_ = true; },
                 [&](const event::Evaluated& e) { evaluation_ = e.loss; },
             },
             event);
}

void Metrics::add(const event::StepPassed& step) {
  const StepRecord& record = step.record;
  next_step_ = record.version + 1;
  last_step_at_ = unix_time();
  ++told_steps_;
  skipped_ += record.skipped ? 1 : 0;
  tokens_ += record.tokens;
  loss_ = record.loss;
  norm_ = record.norm;
  if (step.rate) rate_ = step.rate;
  workers_ = step.world;
  const double seconds = step.ms / 1000;
  step_s_ += seconds;
  const auto bound = std::lower_bound(kStepBounds.begin(), kStepBounds.end(), seconds);
  ++steps_in_[static_cast<std::size_t>(bound - kStepBounds.begin())];
}

void Metrics::add(const event::EpochFormed& epoch) {
  ++epochs_[static_cast<std::size_t>(epoch.kind) - 1];
  workers_ = epoch.members.size();
  pauses_.detect += epoch.detect_ms.value_or(0) / 1000;
  pauses_.form += epoch.form_ms.value_or(0) / 1000;
  pauses_.resume += epoch.resume_ms.value_or(0) / 1000;
}

void Metrics::add(const event::WorkerChanged& change) {
  ++changes_[static_cast<std::size_t>(change.what) - 1];
}

void Metrics::write(Exposition& out, double now) const {
  const std::lock_guard lock(mutex_);
  const auto real = [](auto value) { return static_cast<double>(value); };
  const auto of = [&](const char* name, const char* value, auto count) {
    return Sample{label(name, value), real(count)};
  };
  out.gauge("starling_build_info", "The build and the job; always 1.",
            {{label("build", build_text()) + "," + label("job", name_), 1}});
  if (next_step_)
    out.gauge("starling_step", "Steps that are done, of all of the job.", real(*next_step_));
  out.gauge("starling_steps_wanted", "Steps of the job.", real(steps_));
  out.counter("starling_steps", "Steps told by this process.", told_steps_);
  out.counter("starling_skipped_steps", "Steps whose gradient was not finite.", skipped_);
  out.counter("starling_samples", "Samples of the steps told.", told_steps_ * samples_of_step_);
  out.counter("starling_tokens", "Tokens of the steps told.", tokens_);
  if (told_steps_ > 0) {
    out.gauge("starling_loss", "Loss of the last step; NaN where it was skipped.", loss_);
    out.gauge("starling_gradient_norm", "Norm of the last step's gradient, before clipping.",
              norm_);
    out.gauge("starling_last_step_timestamp_seconds", "When the last step was told, Unix time.",
              last_step_at_);
  }
  if (rate_) out.gauge("starling_learning_rate", "Rate of the last step.", *rate_);
  if (evaluation_) out.gauge("starling_evaluation_loss", "Loss over held-out data.", *evaluation_);
  out.histogram("starling_step_seconds", "Time from one step's commit to the next.", kStepBounds,
                steps_in_, step_s_);
  out.gauge("starling_workers", "Workers of the epoch.", real(workers_));
  out.counter("starling_worker_changes", "Workers that joined, left, were lost or fenced.",
              {of("change", "joined", changes_[0]), of("change", "left", changes_[1]),
               of("change", "lost", changes_[2]), of("change", "fenced", changes_[3])});
  out.counter("starling_epochs", "Epochs by kind.",
              {of("kind", "fresh", epochs_[0]), of("kind", "forced", epochs_[1]),
               of("kind", "prepared", epochs_[2])});
  out.counter("starling_pause_seconds", "Time in which epochs were changed, by part.",
              {of("part", "detect", pauses_.detect), of("part", "form", pauses_.form),
               of("part", "resume", pauses_.resume)});
  out.gauge("starling_exposed_segments", "Segments with fewer current copies than wanted.",
            real(exposed_));
  out.gauge("starling_copies_min", "Copies of the segment with the fewest.", real(copies_min_));
  out.gauge("starling_copies_wanted", "Copies that the job wants.", real(copies_wanted_));
  out.counter("starling_checkpoints", "Checkpoints that are complete.", checkpoints_);
  if (checkpoint_every_ > 0)
    out.gauge("starling_checkpoint_every_steps", "Steps from one checkpoint to the next.",
              real(checkpoint_every_));
  if (checkpoint_every_seconds_ > 0)
    out.gauge("starling_checkpoint_every_seconds", "Age at which a newer checkpoint is asked for.",
              real(checkpoint_every_seconds_));
  if (checkpoint_every_ > 0 || checkpoint_every_seconds_ > 0) {
    out.gauge("starling_checkpoint_step",
              "Step of the newest; that of the start, if none is newer.",
              real(std::max(checkpoint_step_, from_)));
  }
  if (checkpoints_ > 0)
    out.gauge("starling_checkpoint_timestamp_seconds", "When it was complete, Unix time.",
              checkpoint_at_);
  out.counter("starling_restarts",
              "Returns to a checkpoint, as all copies of some state were lost.", restarts_);
  out.counter("starling_notices", "What machines said of their own end.",
              {of("leave", "true", leaves_), of("leave", "false", notices_ - leaves_)});
  out.counter("starling_tainted", "Workers whose work is in doubt.", tainted_);
  out.counter("starling_mismatches", "Micro-batches that came out otherwise when computed again.",
              mismatches_);
  out.counter("starling_warnings", "Warnings.", warnings_);
  out.counter("starling_elections", "Leaders among the coordinators.", elections_);
  out.gauge("starling_term", "Term of the present leader.", real(term_));
  out.counter("starling_dropped_events", "Lines that events.jsonl lacks.", dropped_);
  if (begun_ > 0)
    out.gauge("starling_effective_time_ratio",
              "Time in steps, of all time since this process began to tell.",
              now > begun_ ? std::min(1.0, step_s_ / (now - begun_)) : 0);
  out.gauge("starling_state", "1 for what has become of the run, else 0.",
            {of("state", "running", !done_ && !ended_ && !failed_), of("state", "done", done_),
             of("state", "ended", ended_), of("state", "failed", failed_)});
}

std::string Metrics::text(MetricsFormat format, double now) const {
  Exposition out(format);
  write(out, now);
  return std::move(out).text();
}

}  // namespace starling
