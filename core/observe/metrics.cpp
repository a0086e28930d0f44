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
  const MutexLock lock(mutex_);
  told_.on(event);
}

void Metrics::Told::on(const Event& event) {
  std::visit(Overloaded{
                 [&](const event::Started& e) {
                   begun = unix_time();
                   from = e.from;
                   next_step = from;
                 },
                 [&](const event::Continued&) { begun = unix_time(); },
                 [&](const event::Dropped& e) { dropped += e.lines; },
                 [&](const event::WorkerChanged& e) { add(e); },
                 [&](const event::Preparing&) {},
                 [&](const event::AdminActed&) {},
                 [&](const event::CoordinatorsChanged&) {},
                 [&](const event::EpochFormed& e) { add(e); },
                 [&](const event::TransportChosen&) {},
                 [&](const event::StepPassed& e) { add(e); },
                 [&](const event::LedgerPassed&) {},
                 [&](const event::LeaderElected& e) {
                   ++elections;
                   term = e.term;
                 },
                 [&](const event::Exposed& e) {
                   exposed = e.segments;
                   copies_min = e.copies_min;
                   copies_wanted = e.wanted;
                 },
                 [&](const event::CheckpointWritten& e) {
                   ++checkpoints;
                   checkpoint_step = e.version;
                   checkpoint_at = unix_time();
                 },
                 [&](const event::Restarted& e) {
                   ++restarts;
                   next_step = e.version;
                 },
                 [&](const event::NoticeGiven& e) {
                   ++notices;
                   leaves += e.leave ? 1 : 0;
                 },
                 [&](const event::Tainted&) { ++tainted; },
                 [&](const event::Mismatch&) { ++mismatches; },
                 [&](const event::Warning&) { ++warnings; },
                 [&](const event::Done&) { done = true; },
                 [&](const event::Ended&) { ended = true; },
                 [&](const event::Failed&) { failed = true; },
                 [&](const event::Evaluated& e) { evaluation = e.loss; },
             },
             event);
}

void Metrics::Told::add(const event::StepPassed& step) {
  const StepRecord& record = step.record;
  next_step = record.version + 1;
  last_step_at = unix_time();
  ++told_steps;
  skipped += record.skipped ? 1 : 0;
  tokens += record.tokens;
  loss = record.loss;
  norm = record.norm;
  if (step.rate) rate = step.rate;
  workers = step.world;
  const double seconds = step.ms / 1000;
  step_s += seconds;
  const auto bound = std::lower_bound(kStepBounds.begin(), kStepBounds.end(), seconds);
  ++steps_in[static_cast<std::size_t>(bound - kStepBounds.begin())];
}

void Metrics::Told::add(const event::EpochFormed& epoch) {
  ++epochs[static_cast<std::size_t>(epoch.kind) - 1];
  workers = epoch.members.size();
  pauses.detect += epoch.detect_ms.value_or(0) / 1000;
  pauses.form += epoch.form_ms.value_or(0) / 1000;
  pauses.resume += epoch.resume_ms.value_or(0) / 1000;
}

void Metrics::Told::add(const event::WorkerChanged& change) {
  ++changes[static_cast<std::size_t>(change.what) - 1];
}

void Metrics::write(Exposition& out, double now) const {
  const MutexLock lock(mutex_);
  const auto real = [](auto value) { return static_cast<double>(value); };
  const auto of = [&](const char* name, const char* value, auto count) {
    return Sample{label(name, value), real(count)};
  };
  out.gauge("starling_build_info", "The build and the job; always 1.",
            {{label("build", build_text()) + "," + label("job", name_), 1}});
  if (told_.next_step)
    out.gauge("starling_step", "Steps that are done, of all of the job.", real(*told_.next_step));
  out.gauge("starling_steps_wanted", "Steps of the job.", real(steps_));
  out.counter("starling_steps", "Steps told by this process.", told_.told_steps);
  out.counter("starling_skipped_steps", "Steps whose gradient was not finite.", told_.skipped);
  out.counter("starling_samples", "Samples of the steps told.",
              told_.told_steps * samples_of_step_);
  out.counter("starling_tokens", "Tokens of the steps told.", told_.tokens);
  if (told_.told_steps > 0) {
    out.gauge("starling_loss", "Loss of the last step; NaN where it was skipped.", told_.loss);
    out.gauge("starling_gradient_norm", "Norm of the last step's gradient, before clipping.",
              told_.norm);
    out.gauge("starling_last_step_timestamp_seconds", "When the last step was told, Unix time.",
              told_.last_step_at);
  }
  if (told_.rate) out.gauge("starling_learning_rate", "Rate of the last step.", *told_.rate);
  if (told_.evaluation)
    out.gauge("starling_evaluation_loss", "Loss over held-out data.", *told_.evaluation);
  out.histogram("starling_step_seconds", "Time from one step's commit to the next.", kStepBounds,
                told_.steps_in, told_.step_s);
  out.gauge("starling_workers", "Workers of the epoch.", real(told_.workers));
  out.counter("starling_worker_changes", "Workers that joined, left, were lost or fenced.",
              {of("change", "joined", told_.changes[0]), of("change", "left", told_.changes[1]),
               of("change", "lost", told_.changes[2]), of("change", "fenced", told_.changes[3])});
  out.counter("starling_epochs", "Epochs by kind.",
              {of("kind", "fresh", told_.epochs[0]), of("kind", "forced", told_.epochs[1]),
               of("kind", "prepared", told_.epochs[2])});
  out.counter("starling_pause_seconds", "Time in which epochs were changed, by part.",
              {of("part", "detect", told_.pauses.detect), of("part", "form", told_.pauses.form),
               of("part", "resume", told_.pauses.resume)});
  out.gauge("starling_exposed_segments", "Segments with fewer current copies than wanted.",
            real(told_.exposed));
  out.gauge("starling_copies_min", "Copies of the segment with the fewest.",
            real(told_.copies_min));
  out.gauge("starling_copies_wanted", "Copies that the job wants.", real(told_.copies_wanted));
  out.counter("starling_checkpoints", "Checkpoints that are complete.", told_.checkpoints);
  if (checkpoint_every_ > 0)
    out.gauge("starling_checkpoint_every_steps", "Steps from one checkpoint to the next.",
              real(checkpoint_every_));
  if (checkpoint_every_seconds_ > 0)
    out.gauge("starling_checkpoint_every_seconds", "Age at which a newer checkpoint is asked for.",
              real(checkpoint_every_seconds_));
  if (checkpoint_every_ > 0 || checkpoint_every_seconds_ > 0) {
    out.gauge("starling_checkpoint_step",
              "Step of the newest; that of the start, if none is newer.",
              real(std::max(told_.checkpoint_step, told_.from)));
  }
  if (told_.checkpoints > 0)
    out.gauge("starling_checkpoint_timestamp_seconds", "When it was complete, Unix time.",
              told_.checkpoint_at);
  out.counter("starling_restarts",
              "Returns to a checkpoint, as all copies of some state were lost.", told_.restarts);
  out.counter(
      "starling_notices", "What machines said of their own end.",
      {of("leave", "true", told_.leaves), of("leave", "false", told_.notices - told_.leaves)});
  out.counter("starling_tainted", "Workers whose work is in doubt.", told_.tainted);
  out.counter("starling_mismatches", "Micro-batches that came out otherwise when computed again.",
              told_.mismatches);
  out.counter("starling_warnings", "Warnings.", told_.warnings);
  out.counter("starling_elections", "Leaders among the coordinators.", told_.elections);
  out.gauge("starling_term", "Term of the present leader.", real(told_.term));
  out.counter("starling_dropped_events", "Lines that events.jsonl lacks.", told_.dropped);
  if (told_.begun > 0)
    out.gauge("starling_effective_time_ratio",
              "Time in steps, of all time since this process began to tell.",
              now > told_.begun ? std::min(1.0, told_.step_s / (now - told_.begun)) : 0);
  out.gauge("starling_state", "1 for what has become of the run, else 0.",
            {of("state", "running", !told_.done && !told_.ended && !told_.failed),
             of("state", "done", told_.done), of("state", "ended", told_.ended),
             of("state", "failed", told_.failed)});
}

std::string Metrics::text(MetricsFormat format, double now) const {
  Exposition out(format);
  write(out, now);
  return std::move(out).text();
}

}  // namespace starling
