#include "tools/starling/spectator.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <utility>

#include "core/base/overloaded.h"
#include "core/job/words.h"
#include "core/observe/loss_curve.h"
#include "core/text/tokens_note.h"

namespace starling::tools {

std::string done_text(const event::Done& done) {
  char text[128];
  std::snprintf(text, sizeof text, "done: version %llu, loss %.6g, digest %s",
                static_cast<unsigned long long>(done.version), done.loss,
                to_string(done.digest).c_str());
  return text;
}

const char* unit_of(const Job& job) {
  const auto input = input_of(job.model);
  return input && input->tokens() ? "tokens" : "samples";
}

namespace {

// Bytes of a token of the held-out data; 0: not known, or of some the loss is not computed.
double bytes_of_token(const Job& job) {
  if (job.data.kind == DataKind::kText) return 1;
  const auto note = TokensNote::read(job.evaluate.path);
  return note && note->tokens > 0 && !note->learned
             ? static_cast<double>(note->bytes) / static_cast<double>(note->tokens)
             : 0;
}

}  // namespace

Spectator::Spectator(const Job& job)
    : line_(stdout, ProgressStyle::of(stdout), job.steps, unit_of(job)) {
  const auto input = input_of(job.model);
  language_ = job.evaluate.on() && input && input->tokens();
  if (language_) bytes_of_token_ = bytes_of_token(job);
}

void Spectator::show(const Event& event) {
  std::visit(
      Overloaded{
          [&](const event::StepPassed& e) {
            if (count(e))
              line_.step({e.record.version, e.record.loss, e.record.tokens, e.epoch, e.world,
                          e.record.skipped, e.ms, newcomers_.count()});
          },
          [&](const event::EpochFormed& e) { show_epoch(e); },
          [&](const event::Evaluated& e) { show_evaluation(e); },
          [&](const event::Preparing& e) { newcomers_.take(e); },
          [&](const event::WorkerChanged& e) {
            newcomers_.take(e);
            // Later the epoch says which workers have come.
            if (e.what != WorkerChange::kJoined || !epoch_seen())
              say(e.name + " " + to_string(e.what));
          },
          [&](const event::Restarted& e) {
            say("restart from the checkpoint of step " + std::to_string(e.version) + " (" +
                e.cause + ")");
          },
          [&](const event::NoticeGiven& e) {
            say(e.name + " has notice from " + e.source + (e.text.empty() ? "" : ": " + e.text));
          },
          [&](const event::CoordinatorsChanged& e) {
            say("the coordinators of the group are now " + names_of_coordinators(e.places));
          },
          [&](const event::AdminActed& e) {
            say(e.by + " asks for " + e.action + (e.worker.empty() ? "" : " of " + e.worker) +
                (e.peak_rate ? " " + job_words::number_text(*e.peak_rate) : ""));
          },
          [&](const event::TransportChosen& e) {
            if (e.on_device) say("bytes go from device to device (" + e.why + ")");
          },
          [&](const event::Warning& e) { warn(e.text); },
          [&](const event::Dropped& e) {
            warn(std::to_string(e.lines) + " events are missing, as " + e.why);
          },
          // A warning says these when they happen, and doubt() at the end.
          [&](const event::Tainted&) { remember(event); },
          [&](const event::Mismatch&) { remember(event); },
          // These events are for files, and ends also for the caller of the run.
          [](const OneOf<event::Started, event::Continued, event::LedgerPassed,
                         event::LeaderElected, event::Exposed, event::CheckpointWritten,
                         event::Done, event::Ended, event::Failed> auto&) {},
      },
      event);
}

void Spectator::show_epoch(const event::EpochFormed& epoch) {
  epoch_seen_ = true;
  say("epoch " + label_of(epoch) + (epoch.cause.empty() ? "" : " (" + epoch.cause + ")"));
}

void Spectator::remember(const Event& event) {
  if (const auto* started = std::get_if<event::Started>(&event)) begins_at(started->from);
  if (const auto* step = std::get_if<event::StepPassed>(&event))
    if (count(*step)) line_.remember({.skipped = step->record.skipped});
  if (std::holds_alternative<event::EpochFormed>(event)) epoch_seen_ = true;
  if (const auto* tainted = std::get_if<event::Tainted>(&event))
    doubted_from_ = std::min(doubted_from_, tainted->first);
  if (const auto* mismatch = std::get_if<event::Mismatch>(&event)) {
    doubted_from_ = std::min(doubted_from_, mismatch->version);
    ++mismatches_;
  }
}

bool Spectator::count(const event::StepPassed& step) {
  const StepRecord& record = step.record;
  divergence_.take(record);
  if (last_ && record.version <= *last_) return false;  // every member tells every step
  last_ = record.version;
  world_ = step.world;
  return true;
}

void Spectator::show_evaluation(const event::Evaluated& evaluation) {
  if (evaluated_ && evaluation.version <= *evaluated_) return;  // every member tells it
  evaluated_ = evaluation.version;
  char text[96];
  std::snprintf(text, sizeof text, "step %llu/%llu  held-out loss %.4f",
                static_cast<unsigned long long>(evaluation.version),
                static_cast<unsigned long long>(line_.steps()), evaluation.loss);
  std::string line = text;
  if (language_) {
    std::snprintf(text, sizeof text, "  perplexity %.4g", std::exp(evaluation.loss));
    line += text;
  }
  if (language_ && bytes_of_token_ > 0) {
    std::snprintf(text, sizeof text, "  %.4f bits per byte",
                  evaluation.loss / std::numbers::ln2 / bytes_of_token_);
    line += text;
  }
  for (const double metric : evaluation.metrics) {
    std::snprintf(text, sizeof text, "  %.4f", metric);
    line += text;
  }
  say(line);
}

std::string Spectator::doubt() const {
  if (doubted_from_ == kNoVersion) return "";
  std::string text = "the result is in doubt from step " + std::to_string(doubted_from_) + " on: ";
  if (mismatches_ == 0)
    text += "\"tainted\" in events.jsonl says why";
  else if (mismatches_ == 1)
    text += "a micro-batch had other bits when it was computed again";
  else
    text +=
        std::to_string(mismatches_) + " micro-batches had other bits when they were computed again";
  return text + "; docs/data.md says how to go on without the doubt";
}

}  // namespace starling::tools
